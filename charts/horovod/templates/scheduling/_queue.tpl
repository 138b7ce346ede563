{{/* The queue of Kueue, which admits all pods of the run together. */}}

{{/*
The labels and annotations of the pods of a group or of the master for Kueue, as JSON; none without its queue.
Kueue takes the pods for a group of plain pods. It must not take the StatefulSets and the Job for jobs of
their own, so that only the pods have the queue's label.
Call with (dict "root" $ "of" $group).
*/}}
{{- define "horovod.queueMetadata" -}}
{{- $facts := .root.facts -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- if $facts.kueue -}}
  {{- /* The name of the run in the queue, which is that of its Workload. */ -}}
  {{- $entry := printf "%s-%s" $facts.fullname $facts.settingsHash -}}
  {{- $_ := set $labels "kueue.x-k8s.io/queue-name" $facts.kueue -}}
  {{- $_ := set $labels "kueue.x-k8s.io/managed" "true" -}}
  {{- $_ := set $labels "kueue.x-k8s.io/pod-group-name" $entry -}}
  {{- $_ := set $annotations "kueue.x-k8s.io/pod-group-total-count" (toString $facts.gangSize) -}}
  {{- /* Kueue shows the master and each worker group by these names, with their resources. */ -}}
  {{- $_ := set $annotations "kueue.x-k8s.io/role-hash" (.of.name | default "master") -}}
  {{- if .of.name -}}
    {{- /* Kueue gives the nodes of a topology to the workers of a group in the order of this label, which the
    StatefulSet sets: workers of consecutive ranks are neighbours. The master's pod has no such label. */ -}}
    {{- $_ := set $annotations "kueue.x-k8s.io/pod-group-pod-index-label" "apps.kubernetes.io/pod-index" -}}
  {{- end -}}
  {{- /* The run is over as soon as no pod is active. Otherwise, each pod would have to succeed, as workers
  never do. */ -}}
  {{- $_ := set $annotations "kueue.x-k8s.io/retriable-in-group" "false" -}}
  {{- /* Kueue then leaves its finalizer out, which would keep the StatefulSet from replacing a worker under
  its name. */ -}}
  {{- $_ := set $annotations "kueue.x-k8s.io/pod-suspending-parent" "horovod" -}}
{{- end -}}
{{ dict "labels" $labels "annotations" $annotations | toJson }}
{{- end }}
