{{/* Refusals of where a group's pods run, and of what Linux allows them there. */}}

{{- define "horovod.checkPlacement" -}}
{{- $user := .Values.podSecurityContext.runAsUser -}}
{{- range .facts.groups -}}
  {{- if and (eq .spread "Required") (hasKey .affinity "podAntiAffinity") -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "group %q: spread is Required but affinity.podAntiAffinity is given too" .name)
      "do" "use only one of them (spread: None leaves it to affinity)") -}}
  {{- end -}}
  {{- if and .capabilities (ne (toString $user) "0") -}}
    {{- $uid := toString ($user | default "the image's") -}}
    {{- $capabilities := printf "group %q: capabilities is %s" .name (toJson .capabilities) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s but podSecurityContext.runAsUser is %s" $capabilities $uid)
      "why" "Linux gives added capabilities to root only"
      "do" "run as 0 (with runAsNonRoot: false), or remove them and raise the node's memlock limit") -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.podSecurityContext.runAsNonRoot (eq (toString $user) "0") -}}
  {{- include "horovod.refuse" (dict
    "what" "podSecurityContext.runAsUser is 0 but runAsNonRoot is true"
    "do" "for a root image set runAsNonRoot to false too") -}}
{{- end -}}
{{- end }}
