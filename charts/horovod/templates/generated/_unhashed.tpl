{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.unhashed" -}}
[
  "code.requirements",
  "launch.framework",
  "staging.nodes"
]
{{- end }}
