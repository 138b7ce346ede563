{{/* Names, labels and selectors of the objects. */}}

{{- define "horovod.prepareNames" -}}
{{- $facts := .facts -}}
{{- /* As in charts that `helm create` makes, nameOverride is left out when the release's name contains
it. */ -}}
{{- $suffix := .Values.nameOverride -}}
{{- if and $suffix (contains $suffix .Release.Name) -}}{{- $suffix = "" -}}
{{- else if and (not $suffix) (ne .Chart.Name "horovod") -}}{{- $suffix = .Chart.Name -}}
{{- end -}}
{{- $fullname := .Values.fullnameOverride | default (list .Release.Name $suffix | compact | join "-") -}}
{{- $account := ternary (printf "%s-master" $fullname) "" .Values.serviceAccount.create -}}
{{- $_ := set $facts "fullname" $fullname -}}
{{- $_ := set $facts "name" (.Values.nameOverride | default .Chart.Name) -}}
{{- $_ := set $facts "serviceAccount" (.Values.serviceAccount.name | default $account) -}}
{{- $_ := set $facts "record" (printf "%s-run" $fullname) -}}
{{- /* With Volcano, queueName is a queue of Volcano. */ -}}
{{- $_ := set $facts "kueue" (ternary "" .Values.queueName (eq .Values.gang "Volcano")) -}}
{{- /* It would wait in the queue for workers that nobody has scaled up. */ -}}
{{- $_ := set $facts "hasTest" (and $facts.serviceAccount (not $facts.kueue)) -}}
{{- end }}

{{/* Selector labels; call with (dict "root" $ "component" "worker"). */}}
{{- define "horovod.selector" -}}
{{ include "horovod.runSelector" .root }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{/* The same of the workers of one group; call with (dict "root" $ "group" $group). */}}
{{- define "horovod.groupSelector" -}}
{{ include "horovod.selector" (dict "root" .root "component" "worker") }}
hvdchart/group: {{ .group.name | quote }}
{{- end }}

{{/* Labels that all objects and pods of the release share. */}}
{{- define "horovod.runSelector" -}}
app.kubernetes.io/name: {{ .facts.name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Selects the master and the workers, but not TensorBoard. */}}
{{- define "horovod.ownPods" -}}
matchLabels:
  {{- include "horovod.runSelector" . | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [master, worker]}
{{- end }}

{{/*
Labels of every object, but not of pod templates, where the chart's version would replace pods on an upgrade.
*/}}
{{- define "horovod.labels" -}}
{{ include "horovod.runSelector" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
helm.sh/chart: {{ $chart | trunc 63 | trimSuffix "-" | quote }}
{{- $own := list .root.Values.labels | include "horovod.layered" | fromYaml }}
{{- with $own }}
{{ toYaml . }}
{{- end }}
{{- end }}
