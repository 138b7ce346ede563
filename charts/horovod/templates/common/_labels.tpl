{{/* Labels and selectors of the objects. */}}

{{/* Selector labels; call with (dict "root" $ "component" "worker"). */}}
{{- define "horovod.selectorLabels" -}}
{{ include "horovod.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{/* The same of the workers of one group; call with (dict "root" $ "group" $group). */}}
{{- define "horovod.groupSelectorLabels" -}}
{{ include "horovod.selectorLabels" (dict "root" .root "component" "worker") }}
hvdchart/group: {{ .group.name | quote }}
{{- end }}

{{/* Labels that all objects and pods of the release share. */}}
{{- define "horovod.releaseLabels" -}}
app.kubernetes.io/name: {{ .facts.name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Selects the master and the workers, but not TensorBoard. */}}
{{- define "horovod.runPodsSelector" -}}
matchLabels:
  {{- include "horovod.releaseLabels" . | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [master, worker]}
{{- end }}

{{/*
Labels of every object, but not of pod templates, where the chart's version would replace pods on an upgrade.
*/}}
{{- define "horovod.labels" -}}
{{ include "horovod.releaseLabels" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
helm.sh/chart: {{ $chart | trunc 63 | trimSuffix "-" | quote }}
{{- with list .root.facts.values.labels | include "horovod.layered" | fromJson }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels with the run of a Job or StatefulSet. */}}
{{- define "horovod.runLabels" -}}
hvdchart/run: {{ .facts.id | quote }}
hvdchart/settings-hash: {{ .facts.settingsHash | quote }}
{{- end }}

{{/*
"true" when an object has all of the labels, else empty.
Call with (dict "object" $object "labels" $labels).
*/}}
{{- define "horovod.hasLabels" -}}
{{- $labels := .object.metadata.labels | default dict -}}
{{- $hasAll := true -}}
{{- range $key, $value := .labels -}}
  {{- $hasAll = and $hasAll (eq (get $labels $key) $value) -}}
{{- end -}}
{{- if $hasAll -}}true{{- end -}}
{{- end }}
