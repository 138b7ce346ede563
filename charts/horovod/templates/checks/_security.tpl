{{/* Refusals about the users of the pods, and what Linux lets them do. */}}

{{- define "horovod.checkCapabilities" -}}
{{- $user := .facts.values.podSecurityContext.runAsUser -}}
{{- range .facts.groups -}}
  {{- if and .capabilities (ne (toString $user) "0") -}}
    {{- $uid := toString ($user | default "the image's") -}}
    {{- $capabilities := printf "%s.capabilities is %s" .valuesKey (toJson .capabilities) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s but podSecurityContext.runAsUser is %s" $capabilities $uid)
      "why" "Linux gives added capabilities to root only"
      "do" "run as 0 (with runAsNonRoot: false), or remove them and raise the node's memlock limit") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkRootUser" -}}
{{- $context := .facts.values.podSecurityContext -}}
{{- if and $context.runAsNonRoot (eq (toString $context.runAsUser) "0") -}}
  {{- include "horovod.refuse" (dict
    "what" "podSecurityContext.runAsUser is 0 but runAsNonRoot is true"
    "do" "for a root image set runAsNonRoot to false too") -}}
{{- end -}}
{{- end }}
