{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.effective" -}}
{
  "worker": {
    "spares": 0,
    "terminationGracePeriodSeconds": 30
  },
  "master": {
    "terminationGracePeriodSeconds": 30
  },
  "launch": {
    "lostAfterSeconds": 12,
    "shrinkAfterSeconds": 30,
    "stallTimeoutSeconds": 3600
  }
}
{{- end }}
