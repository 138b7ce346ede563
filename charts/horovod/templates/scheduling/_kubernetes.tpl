{{/* What Kubernetes' own scheduler needs for `gang: Kubernetes`, as YAML for horovod.prepareGang. */}}
{{- define "horovod.gangOfKubernetes" -}}
{{- $api := "scheduling.k8s.io/v1beta1" -}}
{{- /* Kubernetes lets nobody change the specification of a PodGroup: another one is another object. */ -}}
{{- $spec := include "horovod.podGroupSpec" . | fromYaml | toJson -}}
{{- $name := printf "%s-%s" .facts.fullname (sha256sum $spec | trunc 8) -}}
podGroup:
  {{- if .Capabilities.APIVersions.Has (printf "%s/PodGroup" $api) }}
  apiVersion: {{ $api }}
  {{- end }}
  name: {{ quote $name }}
  spec: {{ $spec }}
podFields: |-
  schedulingGroup: {podGroupName: {{ quote $name }}}
{{- end }}

{{/* The specification of the PodGroup. */}}
{{- define "horovod.podGroupSpec" -}}
{{- $values := .facts.values -}}
{{- /* A run without its last worker only holds its nodes, unless a spare or its minimum lets it go on. */ -}}
schedulingPolicy: {gang: {minCount: {{ .facts.gangSize }}}}
disruptionMode: {{ ternary "{single: {}}" "{all: {}}" .facts.mayLoseWorkers }}
{{- with $values.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- end }}
