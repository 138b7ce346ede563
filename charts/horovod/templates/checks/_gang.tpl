{{/* Refusals of the gang. */}}
{{- define "horovod.checkGang" -}}
{{- if and .Values.gang (not .facts.gangApi) -}}
  {{- $remedy := "enable the feature gate GenericWorkload and that API, or set gang to Volcano" -}}
  {{- $option := "--api-versions scheduling.k8s.io/v1beta1/PodGroup" -}}
  {{- include "horovod.refuse" (dict
    "what" (printf
      "gang is %s but the cluster has no PodGroup of scheduling.k8s.io that the chart knows" .Values.gang)
    "do" (printf "%s; when you render without the cluster, name it: %s" $remedy $option)) -}}
{{- end -}}
{{- if .Values.gangTopologyKey -}}
  {{- if ne .Values.gang "Kubernetes" -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "gangTopologyKey is %q but gang is %q" .Values.gangTopologyKey .Values.gang)
      "do" "set gang to Kubernetes, or remove gangTopologyKey") -}}
  {{- else if ne .facts.gangApi "scheduling.k8s.io/v1beta1" -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "gangTopologyKey is %q but the cluster has %s" .Values.gangTopologyKey .facts.gangApi)
      "do" "remove it, or use Kubernetes 1.37, which has v1beta1") -}}
  {{- end -}}
{{- end -}}
{{- end }}
