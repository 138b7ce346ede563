{{/* TensorBoard. */}}

{{- define "horovod.tensorboard" -}}
{{ include "horovod.fullname" . }}-tensorboard
{{- end }}

{{/* The directory that TensorBoard reads. */}}
{{- define "horovod.logDir" -}}
{{ .Values.tensorboard.logDir | default (include "horovod.outputPath" .) }}
{{- end }}
