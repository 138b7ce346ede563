{{/*
The labels and annotations of a pod in a queue of Kueue, as YAML; empty without a queue. Kueue takes the pods
for a group of plain pods. It must not take the StatefulSets and the Job for jobs of their own, so that only
the pods have the queue's label. Its Workload has the name of the group.
Call with (dict "root" $ "values" $group), or with the values of the master.
*/}}
{{- define "horovod.podInKueue" -}}
{{- $facts := .root.facts -}}
{{- if $facts.kueue -}}
labels:
  kueue.x-k8s.io/queue-name: {{ quote $facts.kueue }}
  kueue.x-k8s.io/managed: "true"
  kueue.x-k8s.io/pod-group-name: {{ printf "%s-%s" $facts.fullname $facts.settingsHash | quote }}
annotations:
  kueue.x-k8s.io/pod-group-total-count: {{ quote $facts.gangSize }}
  {{- /* Kueue shows the master and each worker group by these names, with their resources. */}}
  kueue.x-k8s.io/role-hash: {{ .values.name | default "master" | quote }}
  {{- if .values.name }}
  {{- /* Kueue gives the nodes of a topology to the workers of a group in the order of this label, which the
  StatefulSet sets: workers of consecutive ranks are neighbours. The master's pod has no such label. */}}
  kueue.x-k8s.io/pod-group-pod-index-label: apps.kubernetes.io/pod-index
  {{- end }}
  {{- /* The run is over as soon as no pod is active. Otherwise, each pod would have to succeed, as workers
  never do. */}}
  kueue.x-k8s.io/retriable-in-group: "false"
  {{- /* Kueue then leaves its finalizer out, which would keep the StatefulSet from replacing a worker under
  its name. */}}
  kueue.x-k8s.io/pod-suspending-parent: horovod
{{- end -}}
{{- end }}
