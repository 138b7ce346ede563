{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.effective" -}}
{
  "worker.spares": 0,
  "worker.terminationGracePeriodSeconds": 30,
  "master.terminationGracePeriodSeconds": 30,
  "launch.lostAfterSeconds": 12,
  "launch.shrinkAfterSeconds": 30,
  "launch.stallTimeoutSeconds": 3600,
  "results.timeoutSeconds": 3600
}
{{- end }}
