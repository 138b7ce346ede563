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
A group's affinity, as YAML. Where the group has no pod anti-affinity, `spread` adds the one that places each
worker of the release on a node of its own.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.workerAffinity" -}}
{{- $affinity := deepCopy .group.affinity -}}
{{- if and (ne .group.spread "None") (not (hasKey $affinity "podAntiAffinity")) -}}
  {{- $labels := include "horovod.selector" (dict "root" .root "component" "worker") | fromYaml -}}
  {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
  {{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
  {{- $weighted := dict "weight" 100 "podAffinityTerm" $term -}}
  {{- $preferred := dict "preferredDuringSchedulingIgnoredDuringExecution" (list $weighted) -}}
  {{- $_ := ternary $required $preferred (eq .group.spread "Required") | set $affinity "podAntiAffinity" -}}
{{- end -}}
{{ toYaml $affinity }}
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
