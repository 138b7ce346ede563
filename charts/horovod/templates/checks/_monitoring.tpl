{{/* Refusals of the timeline, TensorBoard and metrics. */}}

{{- define "horovod.checkMonitoring" -}}
{{- if .Values.horovod.timeline -}}
  {{- range .facts.groups -}}
    {{- if not (include "horovod.hasEnv" (dict "env" .env "name" "OUTPUT_PATH")) -}}
      {{- $problem := printf "horovod.timeline is true but worker.env has no OUTPUT_PATH (group %q)" .name -}}
      {{- fail
        (printf "%s: the timeline is written there; add OUTPUT_PATH and a volume mounted at it" $problem) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if .Values.tensorboard.enabled -}}
  {{- $logDir := .facts.logDir -}}
  {{- if not $logDir -}}
    {{- $problem :=
      "tensorboard.enabled is true but tensorboard.logDir is empty and worker.env has no OUTPUT_PATH" -}}
    {{- fail (printf "%s: set tensorboard.logDir to the directory with the logs" $problem) -}}
  {{- end -}}
  {{- if not (include "horovod.mountOf" (dict "mounts" .Values.volumeMounts "path" $logDir)) -}}
    {{- $problem := printf "tensorboard.logDir is %q but no entry of volumeMounts contains it" $logDir -}}
    {{- fail (printf "%s: TensorBoard reads only from volumes" $problem) -}}
  {{- end -}}
{{- end -}}
{{- if .Values.tensorboard.allowFrom -}}
  {{- $none := "tensorboard.allowFrom is set but" -}}
  {{- if not .Values.tensorboard.enabled -}}
    {{- fail (printf "%s tensorboard.enabled is false: enable TensorBoard, or remove allowFrom" $none) -}}
  {{- end -}}
  {{- if not .facts.hasTensorboardPolicy -}}
    {{- $why := "every pod may connect then; remove one of the two" -}}
    {{- fail (printf "%s networkPolicy.enabled is false: %s" $none $why) -}}
  {{- end -}}
{{- end -}}
{{- range $key := ternary list (list "podMonitor" "rules" "dashboard") .Values.metrics.enabled -}}
  {{- if get $.Values.metrics $key -}}
    {{- fail (printf
      "metrics.%s is set but metrics.enabled is false: there would be nothing to scrape; set both" $key) -}}
  {{- end -}}
{{- end -}}
{{- end }}
