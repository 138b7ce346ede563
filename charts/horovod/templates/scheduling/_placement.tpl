{{/* Where pods run, and the labels and annotations that schedulers, queues and meshes read. */}}

{{/*
Fields that place a pod, except its node selector, affinity and tolerations.
Call with (dict "root" $ "of" $groupOrMaster "component" "worker").
*/}}
{{- define "horovod.placement" -}}
{{- with .of.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- if eq .root.Values.gang "Kubernetes" }}
schedulingGroup: {podGroupName: {{ include "horovod.podGroup" .root | quote }}}
{{- end }}
{{- with .of.topologySpreadConstraints }}
{{- $labels := include "horovod.selector" (dict "root" $.root "component" $.component) | fromYaml }}
{{- /* A release has one master, so that the masters of all releases spread. */}}
{{- $labels = ternary (omit $labels "app.kubernetes.io/instance") $labels (eq $.component "master") }}
topologySpreadConstraints:
  {{- range . }}
  {{- $filled := set (deepCopy .) "labelSelector" (dict "matchLabels" $labels) }}
  - {{ ternary . $filled (hasKey . "labelSelector") | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Node selector, affinity and tolerations. Call with a group or with .Values.master. */}}
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

{{/* Pod anti-affinity that places each worker of the release on a node of its own. */}}
{{- define "horovod.spread" -}}
{{- $labels := include "horovod.selector" (dict "root" .root "component" "worker") | fromYaml -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- if eq .group.spread "Required" -}}
{{ dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) | toYaml }}
{{- else -}}
{{ dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) | toYaml }}
{{- end -}}
{{- end }}

{{/* Labels of the master and the workers for schedulers and service meshes. */}}
{{- define "horovod.podLabels" -}}
{{- if eq .Values.gang "SchedulerPlugins" }}
scheduling.x-k8s.io/pod-group: {{ include "horovod.podGroup" . | quote }}
{{- end }}
{{- if eq .Values.serviceMesh "Disabled" }}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
{{- else if eq .Values.serviceMesh "Ambient" }}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: ambient
{{- end }}
{{- end }}

{{/* Annotations of the master and the workers for schedulers and service meshes. */}}
{{- define "horovod.podAnnotations" -}}
{{- if eq .Values.gang "Volcano" }}
scheduling.k8s.io/group-name: {{ include "horovod.podGroup" . | quote }}
{{- end }}
{{- if eq .Values.serviceMesh "Disabled" }}
linkerd.io/inject: disabled
{{- else if eq .Values.serviceMesh "Hold" }}
{{- /* A native sidecar starts before the init containers and ends with the pod.
Meshes that cannot inject one hold the containers back until the proxy has started. */}}
sidecar.istio.io/nativeSidecar: "true"
config.beta.linkerd.io/proxy-enable-native-sidecar: "true"
proxy.istio.io/config: '{"holdApplicationUntilProxyStarts": true}'
config.linkerd.io/proxy-await: enabled
{{- end }}
{{- end }}

{{/* Kueue's LocalQueue; empty without one. With Volcano, queueName is a queue of Volcano. */}}
{{- define "horovod.kueue" -}}
{{- if ne .Values.gang "Volcano" -}}{{ .Values.queueName }}{{- end -}}
{{- end }}

{{/*
Adds to a group or the master what makes Kueue admit all pods of the run together, as a group of plain pods. Kueue must not
take the StatefulSets and the Job for jobs of their own, so that only the pods have the queue's label. Call with
(dict "root" $ "of" $group).
*/}}
{{- define "horovod.addToQueue" -}}
{{- with include "horovod.kueue" .root -}}
{{- $pods := 1 -}}
{{- range $.root.horovod.groups -}}{{- $pods = add $pods .number (.spares | default 0) -}}{{- end -}}
{{- $labels := dict "kueue.x-k8s.io/queue-name" . "kueue.x-k8s.io/managed" "true" -}}
{{- $_ := set $labels "kueue.x-k8s.io/pod-group-name" (include "horovod.queueEntry" $.root) -}}
{{- $annotations := dict "kueue.x-k8s.io/pod-group-total-count" (toString $pods) -}}
{{- /* Kueue shows the master and each worker group by these names, with their resources. */ -}}
{{- $_ := set $annotations "kueue.x-k8s.io/role-hash" ($.of.name | default "master") -}}
{{- /* The run is over as soon as no pod is active. Otherwise, each pod would have to succeed, as workers never do. */ -}}
{{- $_ := set $annotations "kueue.x-k8s.io/retriable-in-group" "false" -}}
{{- /* Kueue then leaves its finalizer out, which would keep the StatefulSet from replacing a worker under its name. */ -}}
{{- $_ := set $annotations "kueue.x-k8s.io/pod-suspending-parent" "horovod" -}}
{{- $_ := set $.of "podLabels" (merge $labels $.of.podLabels) -}}
{{- $_ := set $.of "podAnnotations" (merge $annotations $.of.podAnnotations) -}}
{{- end -}}
{{- end }}

{{/* The name of the run in Kueue's queue, which is that of its Workload. */}}
{{- define "horovod.queueEntry" -}}
{{ include "horovod.fullname" . }}-{{ .horovod.settings }}
{{- end }}

{{- define "horovod.schedulerName" -}}
{{- $ofGang := get (dict "Volcano" "volcano" "SchedulerPlugins" "scheduler-plugins-scheduler") .Values.gang -}}
{{ .Values.schedulerName | default $ofGang }}
{{- end }}
