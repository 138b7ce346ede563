{{/* Where pods run, and their labels and annotations. */}}

{{/* The field by which Kubernetes' own scheduler knows the pods of a gang. */}}
{{- define "horovod.schedulingGroup" -}}
{{- if eq .Values.gang "Kubernetes" -}}
schedulingGroup: {podGroupName: {{ .facts.podGroup | quote }}}
{{- end -}}
{{- end }}

{{/* Node selector, affinity and tolerations. Call with a map that has these, such as .Values.master. */}}
{{- define "horovod.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
A worker's affinity: its group's. Where that has no pod anti-affinity, `spread` adds the one that places each
worker of the release on a node of its own.
Call with (dict "root" $ "group" $group "nodes" $list): the nodes that have the staged data, or none.
*/}}
{{- define "horovod.workerAffinity" -}}
{{- $own := .group.affinity }}
{{- if .nodes }}
{{- $own = omit $own "nodeAffinity" }}
nodeAffinity:
  {{- include "horovod.nodeAffinity" . | nindent 2 }}
{{- end }}
{{- if and (ne .group.spread "None") (not (hasKey $own "podAntiAffinity")) }}
{{- $labels := include "horovod.selector" (dict "root" .root "component" "worker") | fromYaml }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) }}
podAntiAffinity:
  {{- if eq .group.spread "Required" }}
  requiredDuringSchedulingIgnoredDuringExecution: {{ list $term | toJson }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 100, podAffinityTerm: {{ toJson $term }}}
  {{- end }}
{{- end }}
{{- with $own }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
A worker's node affinity: its group's, and one of the nodes. The nodes are selected by their names, from which
the label kubernetes.io/hostname may differ. A field selector takes one name.
Call with (dict "root" $ "group" $group "nodes" $list); the list has a node.
*/}}
{{- define "horovod.nodeAffinity" -}}
{{- $own := .group.affinity.nodeAffinity | default dict }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" }}
{{- if eq .root.Values.staging.nodes "Required" -}}
{{ $required }}:
  nodeSelectorTerms:
    {{- /* Terms are alternatives, so that each term of the group is repeated with each node. */}}
    {{- range $node := .nodes }}
    {{- range dig $required "nodeSelectorTerms" (list dict) $own }}
    - matchFields:
        {{- with .matchFields }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        - {key: metadata.name, operator: In, values: [{{ $node | quote }}]}
      {{- with omit . "matchFields" }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- end }}
{{- with omit $own $required }}
{{ toYaml . }}
{{- end }}
{{- else -}}
{{ $preferred }}:
  {{- with get $own $preferred }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- range .nodes }}
  - weight: 100
    preference:
      matchFields: [{key: metadata.name, operator: In, values: [{{ . | quote }}]}]
  {{- end }}
{{- with omit $own $preferred }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The labels and annotations of the pods of a group or of the master, as JSON: its own, those of the release's
pods, and those that schedulers, service meshes and queues read. Only the queue's override what the user has
set.
Call with (dict "root" $ "of" $group).
*/}}
{{- define "horovod.podMetadata" -}}
{{- $mesh := include "horovod.meshMetadata" .root | fromJson -}}
{{- $queue := include "horovod.queueMetadata" . | fromJson -}}
{{- $values := .root.Values -}}
{{- $gang := dict -}}
{{- if eq $values.gang "Volcano" -}}
  {{- $gang = dict "scheduling.k8s.io/group-name" .root.facts.podGroup -}}
{{- end -}}
{{- $labels := list $mesh.labels $values.podLabels .of.podLabels $queue.labels -}}
{{- $annotations := list $gang $mesh.annotations $values.podAnnotations .of.podAnnotations
  $queue.annotations -}}
{{- $labels = include "horovod.layered" $labels | fromYaml -}}
{{- $annotations = include "horovod.layered" $annotations | fromYaml -}}
{{ dict "labels" $labels "annotations" $annotations | toJson }}
{{- end }}
