{{/* Names, labels and selectors of the objects. */}}

{{/*
The prefix of all object names: the release's name. With nameOverride, and as a dependency with an alias, it is
followed by that name, so that two dependencies of one release have different names. As in charts that `helm create`
makes, nameOverride is left out when the release's name contains it.
*/}}
{{- define "horovod.fullname" -}}
{{- $alias := ternary "" .Chart.Name (eq .Chart.Name "horovod") -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if .Values.nameOverride -}}
{{- $suffix := printf "-%s" .Values.nameOverride -}}
{{ .Release.Name }}{{ if not (contains .Values.nameOverride .Release.Name) }}{{ $suffix }}{{ end }}
{{- else if $alias -}}
{{ printf "%s-%s" .Release.Name $alias }}
{{- else -}}
{{ .Release.Name }}
{{- end -}}
{{- end }}

{{/* The name label, which tells two dependencies of one release apart. */}}
{{- define "horovod.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* The headless Service. A host's name is POD.SERVICE. */}}
{{- define "horovod.service" -}}
{{ include "horovod.fullname" . }}
{{- end }}

{{/* The master's ServiceAccount; empty when the master has no access to the API. */}}
{{- define "horovod.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (printf "%s-master" (include "horovod.fullname" .)) }}
{{- else -}}
{{ .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{/* The workers' ServiceAccount; empty for the namespace's default. Call with (dict "root" $ "group" $group). */}}
{{- define "horovod.workerServiceAccount" -}}
{{- $default := ternary (printf "%s-worker" (include "horovod.fullname" .root)) "" .group.serviceAccount.create -}}
{{ .group.serviceAccount.name | default $default }}
{{- end }}

{{/* Selector labels; call with (dict "root" $ "component" "worker"). */}}
{{- define "horovod.selector" -}}
{{ include "horovod.runSelector" .root }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{/* Labels that all objects and pods of the release share. */}}
{{- define "horovod.runSelector" -}}
app.kubernetes.io/name: {{ include "horovod.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Selects the master and the workers, but not TensorBoard. */}}
{{- define "horovod.ownPods" -}}
matchLabels:
  {{- include "horovod.runSelector" . | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [master, worker]}
{{- end }}

{{/* The selector of the workers as the API takes it in a query: KEY=VALUE,... */}}
{{- define "horovod.workerSelector" -}}
{{- $terms := list -}}
{{- range $key, $value := include "horovod.selector" (dict "root" . "component" "worker") | fromYaml -}}
{{- $terms = append $terms (printf "%s=%s" $key $value) -}}
{{- end -}}
{{ join "," $terms }}
{{- end }}

{{/* Labels of every object, but not of pod templates, where the chart's version would replace pods on an upgrade. */}}
{{- define "horovod.labels" -}}
{{ include "horovod.runSelector" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | quote }}
{{- end }}
