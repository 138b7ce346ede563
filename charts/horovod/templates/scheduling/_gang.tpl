{{/* The gang: its API, and what its containers request. */}}

{{/* The newest version of Kubernetes' own PodGroup that the cluster has; fails where it has none. */}}
{{- define "horovod.kubernetesGang" -}}
{{- $served := list -}}
{{- $versions := list "v1beta1" "v1alpha3" "v1alpha2" -}}
{{- range $versions -}}
{{- $api := printf "scheduling.k8s.io/%s" . -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/PodGroup" $api) }}{{ $served = append $served $api }}{{ end -}}
{{- end -}}
{{- if not $served -}}
{{- $problem := "gang is Kubernetes but the cluster has no PodGroup of scheduling.k8s.io" -}}
{{- $remedy := "enable the feature gate GenericWorkload and that API, or set gang to Volcano or SchedulerPlugins" -}}
{{- $option := "when you render without the cluster, name it: --api-versions scheduling.k8s.io/v1beta1/PodGroup" -}}
{{- fail (printf "%s (%s): %s; %s" $problem (join ", " $versions) $remedy $option) -}}
{{- end -}}
{{ first $served }}
{{- end }}
