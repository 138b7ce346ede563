{{/* Refusals of settings of the agent. */}}

{{- define "horovod.checkAgent" -}}
{{- $agent := .Values.agent -}}
{{- $metricsPort := .facts.shared.metricsPort | int -}}
{{- if and .Values.metrics.enabled (eq (int $agent.port) $metricsPort) -}}
  {{- $remedy := "a worker's metrics are on that port; choose another one" -}}
  {{- fail (printf "metrics.enabled is true but agent.port is %d: %s" $metricsPort $remedy) -}}
{{- end -}}
{{- $given := printf
  "agent.masterSecret is %q and agent.workerSecret is %q" $agent.masterSecret $agent.workerSecret -}}
{{- if ne (empty $agent.masterSecret) (empty $agent.workerSecret) -}}
  {{- fail (printf "%s: give both, or neither and the chart makes the keys" $given) -}}
{{- end -}}
{{- if and $agent.masterSecret (eq $agent.masterSecret $agent.workerSecret) -}}
  {{- fail (printf "%s: give two Secrets, because the workers would have the master's key" $given) -}}
{{- end -}}
{{- end }}
