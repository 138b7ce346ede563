{{/* The gang: all pods of the run, which start together or not at all. */}}

{{/*
Adds to .facts:
  podGroup, gangApi  the gang's PodGroup, and its API; the API is empty where the cluster has none of Kubernetes' own
  gangSize           its pods
  schedulerName      the scheduler of the pods; empty for the cluster's default
*/}}
{{- define "horovod.prepareGang" -}}
{{- $gang := .Values.gang -}}
{{- /* The master and all workers: the run needs each. Spares count, or a scheduler could leave out the master. */ -}}
{{- $size := add 1 .facts.hosts .facts.spares -}}
{{- /* Some Kubernetes releases do not let the size of a PodGroup change, so that the size is in its name. */ -}}
{{- $suffix := ternary (printf "-%d" $size) "" (eq $gang "Kubernetes") -}}
{{- $apis := dict "Volcano" "scheduling.volcano.sh/v1beta1" "SchedulerPlugins" "scheduling.x-k8s.io/v1alpha1" -}}
{{- /* The newest one that the cluster has wins. */ -}}
{{- range list "scheduling.k8s.io/v1alpha2" "scheduling.k8s.io/v1alpha3" "scheduling.k8s.io/v1beta1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/PodGroup" .) -}}{{- $_ := set $apis "Kubernetes" . -}}{{- end -}}
{{- end -}}
{{- $_ := set .facts "gangSize" $size -}}
{{- $_ := set .facts "podGroup" (printf "%s%s" .facts.fullname $suffix) -}}
{{- $_ := set .facts "gangApi" (get $apis $gang) -}}
{{- $schedulers := dict "Volcano" "volcano" "SchedulerPlugins" "scheduler-plugins-scheduler" -}}
{{- $_ := set .facts "schedulerName" (.Values.schedulerName | default (get $schedulers $gang)) -}}
{{- end }}
