{{/* Where the script writes what is stored at the end and what TensorBoard reads. */}}

{{- define "horovod.preparePaths" -}}
{{- $output := "" -}}
{{- range .Values.worker.env -}}
  {{- if eq .name "OUTPUT_PATH" -}}{{- $output = .value | default "" -}}{{- end -}}
{{- end -}}
{{- $_ := set .facts "resultsPath" (.Values.results.path | default $output) -}}
{{- $_ := set .facts "logDir" (.Values.tensorboard.logDir | default $output) -}}
{{- end }}
