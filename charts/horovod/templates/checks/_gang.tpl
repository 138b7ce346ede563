{{/* Refusals of the gang. */}}

{{- define "horovod.checkGang" -}}
{{- if and .Values.gang (not .facts.gangApi) -}}
  {{- $problem := printf
    "gang is %s but the cluster has no PodGroup of scheduling.k8s.io that the chart knows" .Values.gang -}}
  {{- $remedy :=
    "enable the feature gate GenericWorkload and that API, or set gang to Volcano" -}}
  {{- $option :=
    "when you render without the cluster, name it: --api-versions scheduling.k8s.io/v1beta1/PodGroup" -}}
  {{- fail (printf "%s: %s; %s" $problem $remedy $option) -}}
{{- end -}}
{{- if .Values.gangTopologyKey -}}
  {{- if ne .Values.gang "Kubernetes" -}}
    {{- $given := printf "gangTopologyKey is %q but gang is %q" .Values.gangTopologyKey .Values.gang -}}
    {{- fail (printf "%s: set gang to Kubernetes, or remove gangTopologyKey" $given) -}}
  {{- else if ne .facts.gangApi "scheduling.k8s.io/v1beta1" -}}
    {{- $given := printf
      "gangTopologyKey is %q but the cluster has %s" .Values.gangTopologyKey .facts.gangApi -}}
    {{- fail (printf "%s: remove it, or use Kubernetes 1.37, which has v1beta1" $given) -}}
  {{- end -}}
{{- end -}}
{{- end }}
