{{/* Observability: Horovod's timeline and autotune, TensorBoard and metrics. */}}

{{/*
The value of a variable in a list of env entries; empty when it is missing or has valueFrom.
Call with (dict "env" $list "name" "OUTPUT_PATH").
*/}}
{{- define "horovod.envValue" -}}
{{- $name := .name -}}
{{- $value := "" -}}
{{- range .env -}}{{- if eq .name $name -}}{{- $value = .value | default "" -}}{{- end -}}{{- end -}}
{{ $value }}
{{- end }}

{{/* Not empty when the list has the variable, with value or valueFrom. */}}
{{- define "horovod.hasEnv" -}}
{{- $name := .name -}}
{{- range .env -}}{{- if eq .name $name -}}yes{{- end -}}{{- end -}}
{{- end }}

{{/* Horovod settings as a JSON list of environment variables. Variables that the group's env sets are left out. */}}
{{- define "horovod.switches" -}}
{{- $horovod := .root.Values.horovod -}}
{{- $env := .group.env -}}
{{- $switches := dict -}}
{{- $output := include "horovod.hasEnv" (dict "env" $env "name" "OUTPUT_PATH") -}}
{{- /* Kubernetes expands $(OUTPUT_PATH), because it comes earlier in the list. */ -}}
{{- if $horovod.timeline -}}
{{- $_ := set $switches "HOROVOD_TIMELINE" "$(OUTPUT_PATH)/horovod-timeline.json" -}}
{{- end -}}
{{- if $horovod.autotune -}}
{{- $_ := set $switches "HOROVOD_AUTOTUNE" "1" -}}
{{- if $output -}}{{- $_ := set $switches "HOROVOD_AUTOTUNE_LOG" "$(OUTPUT_PATH)/horovod-autotune.csv" -}}{{- end -}}
{{- end -}}
{{- $threshold := $horovod.fusionThresholdMiB -}}
{{- /* 0 is a valid threshold: it disables fusion. */ -}}
{{- if not (kindIs "invalid" $threshold) -}}
{{- $_ := set $switches "HOROVOD_FUSION_THRESHOLD" (mul $threshold 1048576 | toString) -}}
{{- end -}}
{{- with $horovod.cycleTimeMs -}}{{- $_ := set $switches "HOROVOD_CYCLE_TIME" (toString .) -}}{{- end -}}
{{- $added := list -}}
{{- range $name, $value := $switches -}}
{{- if not (include "horovod.hasEnv" (dict "env" $env "name" $name)) -}}
{{- $added = append $added (dict "name" $name "value" $value) -}}
{{- end -}}
{{- end -}}
{{ $added | toJson }}
{{- end }}

{{/* The directory that TensorBoard reads. */}}
{{- define "horovod.logDir" -}}
{{- $output := include "horovod.envValue" (dict "env" .Values.worker.env "name" "OUTPUT_PATH") -}}
{{ .Values.tensorboard.logDir | default $output }}
{{- end }}

{{/*
The volume mount that contains a path, as JSON; empty when none does. Call with (dict "mounts" $list "path" $path).
*/}}
{{- define "horovod.mountOf" -}}
{{- $path := .path -}}
{{- $found := dict -}}
{{- range .mounts -}}
{{- $point := trimSuffix "/" .mountPath -}}
{{- $contains := or (eq $path $point) (hasPrefix (printf "%s/" $point) $path) -}}
{{- if and $contains (gt (len $point) (len (dig "mountPath" "" $found))) -}}
{{- $found = . -}}
{{- end -}}
{{- end -}}
{{- with $found -}}{{ toJson . }}{{- end -}}
{{- end }}

{{- define "horovod.tensorboard" -}}
{{ include "horovod.fullname" . }}-tensorboard
{{- end }}

{{/* Environment of the master for hvd_pods/common/metrics.py. */}}
{{- define "horovod.metricsEnv" -}}
{{- if .Values.metrics.enabled -}}
- {name: HVD_METRICS_PORT, value: "{{ include "horovod.metricsPort" . }}"}
- {name: HVD_METRICS_FILE, value: {{ .Values.metrics.file | quote }}}
{{- end -}}
{{- end }}

{{/*
Environment of a worker for hvd_pods/common/metrics.py. Ranks write their metrics to the directory, which is in memory; the master
reads their progress there also when nothing is served.
*/}}
{{- define "horovod.workerMetricsEnv" -}}
- {name: HVD_METRICS_DIR, value: /horovod/generated/metrics}
{{- if .Values.metrics.enabled }}
- {name: HVD_METRICS_PORT, value: "{{ include "horovod.metricsPort" . }}"}
{{- end -}}
{{- end }}

{{- define "horovod.metricsPort" -}}
9400
{{- end }}
