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

{{/* The Kueue label of the StatefulSets and the Job. */}}
{{- define "horovod.queueLabels" -}}
{{- if and .Values.queueName (ne .Values.gang "Volcano") -}}
kueue.x-k8s.io/queue-name: {{ .Values.queueName | quote }}
{{- end -}}
{{- end }}

{{- define "horovod.schedulerName" -}}
{{- $ofGang := get (dict "Volcano" "volcano" "SchedulerPlugins" "scheduler-plugins-scheduler") .Values.gang -}}
{{ .Values.schedulerName | default $ofGang }}
{{- end }}
