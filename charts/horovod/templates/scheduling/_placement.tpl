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
schedulingGroup: {podGroupName: {{ .root.facts.podGroup | quote }}}
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
A group's affinity, as YAML. Where the group has no pod anti-affinity, `spread` adds the one that places each worker of
the release on a node of its own. Call with (dict "root" $ "group" $group).
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
The labels and annotations of the pods of a group or of the master, as JSON: its own, those of the release's pods, and
those that schedulers, service meshes and queues read. Call with (dict "root" $ "of" $group).
*/}}
{{- define "horovod.podMetadata" -}}
{{- $values := .root.Values -}}
{{- $mesh := $values.serviceMesh -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- if eq $values.gang "SchedulerPlugins" -}}
  {{- $_ := set $labels "scheduling.x-k8s.io/pod-group" .root.facts.podGroup -}}
{{- else if eq $values.gang "Volcano" -}}
  {{- $_ := set $annotations "scheduling.k8s.io/group-name" .root.facts.podGroup -}}
{{- end -}}
{{- if has $mesh (list "Disabled" "Ambient") -}}
  {{- $_ := set $labels "sidecar.istio.io/inject" "false" -}}
  {{- $_ := set $labels "istio.io/dataplane-mode" (ternary "ambient" "none" (eq $mesh "Ambient")) -}}
{{- end -}}
{{- if eq $mesh "Disabled" -}}
  {{- $_ := set $annotations "linkerd.io/inject" "disabled" -}}
{{- else if eq $mesh "Hold" -}}
  {{- /* A native sidecar starts before the init containers and ends with the pod. Meshes that cannot inject one hold the
containers back until the proxy has started. */ -}}
  {{- $_ := set $annotations "sidecar.istio.io/nativeSidecar" "true" -}}
  {{- $_ := set $annotations "config.beta.linkerd.io/proxy-enable-native-sidecar" "true" -}}
  {{- $_ := set $annotations "proxy.istio.io/config" `{"holdApplicationUntilProxyStarts": true}` -}}
  {{- $_ := set $annotations "config.linkerd.io/proxy-await" "enabled" -}}
{{- end -}}
{{- $allLabels := list $labels $values.podLabels .of.podLabels | include "horovod.layered" | fromYaml -}}
{{- $allAnnotations := list $annotations $values.podAnnotations .of.podAnnotations | include "horovod.layered" | fromYaml -}}
{{- /* Kueue admits all pods of the run together, as a group of plain pods. It must not take the StatefulSets and the Job
for jobs of their own, so that only the pods have the queue's label. */ -}}
{{- with .root.facts.kueue -}}
  {{- /* The name of the run in the queue, which is that of its Workload. */ -}}
  {{- $entry := printf "%s-%s" $.root.facts.fullname $.root.facts.settings -}}
  {{- $_ := set $allLabels "kueue.x-k8s.io/queue-name" . -}}
  {{- $_ := set $allLabels "kueue.x-k8s.io/managed" "true" -}}
  {{- $_ := set $allLabels "kueue.x-k8s.io/pod-group-name" $entry -}}
  {{- $_ := set $allAnnotations "kueue.x-k8s.io/pod-group-total-count" (toString $.root.facts.gangSize) -}}
  {{- /* Kueue shows the master and each worker group by these names, with their resources. */ -}}
  {{- $_ := set $allAnnotations "kueue.x-k8s.io/role-hash" ($.of.name | default "master") -}}
  {{- if $.of.name -}}
    {{- /* Kueue gives the nodes of a topology to the workers of a group in the order of this label, which the StatefulSet
sets: workers of consecutive ranks are neighbours. The master's pod has no such label. */ -}}
    {{- $_ := set $allAnnotations "kueue.x-k8s.io/pod-group-pod-index-label" "apps.kubernetes.io/pod-index" -}}
  {{- end -}}
  {{- /* The run is over as soon as no pod is active. Otherwise, each pod would have to succeed, as workers never do. */ -}}
  {{- $_ := set $allAnnotations "kueue.x-k8s.io/retriable-in-group" "false" -}}
  {{- /* Kueue then leaves its finalizer out, which would keep the StatefulSet from replacing a worker under its name. */ -}}
  {{- $_ := set $allAnnotations "kueue.x-k8s.io/pod-suspending-parent" "horovod" -}}
{{- end -}}
{{ dict "labels" $allLabels "annotations" $allAnnotations | toJson }}
{{- end }}
