{{/* TensorBoard. */}}

{{- define "horovod.tensorboard" -}}
{{ include "horovod.fullname" . }}-tensorboard
{{- end }}

{{/* The directory that TensorBoard reads. */}}
{{- define "horovod.logDir" -}}
{{- $output := include "horovod.envValue" (dict "env" .Values.worker.env "name" "OUTPUT_PATH") -}}
{{ .Values.tensorboard.logDir | default $output }}
{{- end }}
