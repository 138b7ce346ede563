{{/* Refusals of where a group's pods run, and of what Linux allows them there. */}}

{{- define "horovod.checkPlacement" -}}
{{- $user := .Values.podSecurityContext.runAsUser -}}
{{- range .facts.groups -}}
  {{- if and (eq .spread "Required") (hasKey .affinity "podAntiAffinity") -}}
    {{- $subject := printf "group %q: spread is Required but affinity.podAntiAffinity is given too" .name -}}
    {{- fail (printf "%s: use only one of them (spread: None leaves it to affinity)" $subject) -}}
  {{- end -}}
  {{- if and .capabilities (ne (toString $user) "0") -}}
    {{- $uid := toString ($user | default "the image's") -}}
    {{- $pair := printf
      "capabilities is %s but podSecurityContext.runAsUser is %s" (toJson .capabilities) $uid -}}
    {{- $rule := "Linux gives added capabilities to root only" -}}
    {{- $remedy :=
      "run as 0 (with runAsNonRoot: false), or remove them and raise the node's memlock limit instead" -}}
    {{- fail (printf "group %q: %s: %s; %s" .name $pair $rule $remedy) -}}
  {{- end -}}
{{- end -}}
{{- end }}
