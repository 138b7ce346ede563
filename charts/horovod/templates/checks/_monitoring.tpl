{{/* Refusals of the timeline, TensorBoard and metrics. */}}
{{- define "horovod.checkMonitoring" -}}
{{- if .facts.values.horovod.timeline -}}
  {{- range .facts.groups -}}
    {{- if not (include "horovod.envEntry" (dict "env" .env "name" "OUTPUT_PATH") | fromJson) -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "horovod.timeline is true but worker.env has no OUTPUT_PATH (group %q)" .name)
        "why" "the timeline is written there"
        "do" "add OUTPUT_PATH and a volume mounted at it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if .facts.values.tensorboard.enabled -}}
  {{- $logDir := .facts.logDir -}}
  {{- if not $logDir -}}
    {{- include "horovod.refuse" (dict
      "what" "tensorboard.enabled is true but tensorboard.logDir is empty and worker.env has no OUTPUT_PATH"
      "do" "set tensorboard.logDir to the directory with the logs") -}}
  {{- end -}}
  {{- $mounts := .facts.values.volumeMounts -}}
  {{- if not (include "horovod.mountOf" (dict "mounts" $mounts "path" $logDir) | fromJson) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "tensorboard.logDir is %q but no entry of volumeMounts contains it" $logDir)
      "why" "TensorBoard reads only from volumes") -}}
  {{- end -}}
{{- end -}}
{{- if .facts.values.tensorboard.allowFrom -}}
  {{- if not .facts.values.tensorboard.enabled -}}
    {{- include "horovod.refuse" (dict
      "what" "tensorboard.allowFrom is set but tensorboard.enabled is false"
      "do" "enable TensorBoard, or remove allowFrom") -}}
  {{- end -}}
  {{- if not .facts.hasTensorboardPolicy -}}
    {{- include "horovod.refuse" (dict
      "what" "tensorboard.allowFrom is set but networkPolicy.enabled is false"
      "why" "every pod may connect then"
      "do" "remove one of the two") -}}
  {{- end -}}
{{- end -}}
{{- range $key := ternary list (list "podMonitor" "rules" "dashboard") .facts.values.metrics.enabled -}}
  {{- if get $.facts.values.metrics $key -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "metrics.%s is set but metrics.enabled is false" $key)
      "why" "there would be nothing to scrape"
      "do" "set both") -}}
  {{- end -}}
{{- end -}}
{{- end }}
