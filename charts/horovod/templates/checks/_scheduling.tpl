{{/* Refusals about the nodes of the workers, and about the gang. */}}

{{/* Two rules for how workers spread over nodes. */}}
{{- define "horovod.checkSpread" -}}
{{- range .facts.groups -}}
  {{- if and (eq .spread "Required") (hasKey .affinity "podAntiAffinity") -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s.spread is Required but %s.affinity.podAntiAffinity is given too"
        .valuesKey .valuesKey)
      "do" "use only one of them (spread: None leaves it to affinity)") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkGang" -}}
{{- $gang := .facts.values.gang -}}
{{- if and $gang (not .facts.podGroup.apiVersion) -}}
  {{- $needed := "enable the feature gate GenericWorkload and that API in Kubernetes 1.37 or newer" -}}
  {{- $option := "--api-versions scheduling.k8s.io/v1beta1/PodGroup" -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "gang is %s but the cluster has no PodGroup of scheduling.k8s.io/v1beta1" $gang)
    "do" (printf "%s, or set gang to Volcano; when you render without the cluster, name it: %s"
      $needed $option)) -}}
{{- end -}}
{{- end }}
