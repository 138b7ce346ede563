{{/* Refusals of settings of the agent. */}}

{{- define "horovod.checkAgent" -}}
{{- $agent := .Values.agent -}}
{{- $metricsPort := .facts.shared.metricsPort | int -}}
{{- if and .Values.metrics.enabled (eq (int $agent.port) $metricsPort) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "metrics.enabled is true but agent.port is %d" $metricsPort)
    "why" "a worker's metrics are on that port"
    "do" "choose another one") -}}
{{- end -}}
{{- $given := printf
  "agent.masterSecret is %q and agent.workerSecret is %q" $agent.masterSecret $agent.workerSecret -}}
{{- if ne (empty $agent.masterSecret) (empty $agent.workerSecret) -}}
  {{- include "horovod.refuse" (dict "what" $given "do" "give both, or neither and the chart makes the keys") -}}
{{- end -}}
{{- if and $agent.masterSecret (eq $agent.masterSecret $agent.workerSecret) -}}
  {{- include "horovod.refuse" (dict
    "what" $given
    "do" "give two Secrets, because the workers would have the master's key") -}}
{{- end -}}
{{- end }}
