{{/* Generated from files/hvd_pods/shared/exit_codes.py by `make generate`: edit that file. */}}
{{- define "horovod.lostMasterCodes" -}}
[
  70,
  137,
  143
]
{{- end }}
