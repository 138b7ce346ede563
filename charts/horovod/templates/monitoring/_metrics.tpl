{{/* Prometheus metrics. */}}

{{- define "horovod.metricsPort" -}}
9400
{{- end }}

{{/* Environment of the master for hvd_pods/master/serve_metrics.py. */}}
{{- define "horovod.metricsEnv" -}}
{{- if .Values.metrics.enabled -}}
- {name: HVD_METRICS_PORT, value: "{{ include "horovod.metricsPort" . }}"}
- {name: HVD_METRICS_FILE, value: {{ .Values.metrics.file | quote }}}
{{- end -}}
{{- end }}

{{/*
Environment of a worker for hvd_pods/worker/main.py. Ranks write their metrics to the directory, which is in memory.
The master reads their progress there even when metrics.enabled is false.
*/}}
{{- define "horovod.workerMetricsEnv" -}}
- {name: HVD_METRICS_DIR, value: /horovod/generated/metrics}
{{- if .Values.metrics.enabled }}
- {name: HVD_METRICS_PORT, value: "{{ include "horovod.metricsPort" . }}"}
{{- end -}}
{{- end }}
