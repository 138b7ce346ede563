{{/* The keys with which the master and the agents in the workers know each other. */}}

{{- define "horovod.prepareKeys" -}}
{{- $agent := .Values.agent -}}
{{- $fullname := .facts.fullname -}}
{{- /* The keys of each agent.generation have Secrets and names of their own. */ -}}
{{- $generation := int $agent.generation -}}
{{- $secrets := dict -}}
{{- $names := dict -}}
{{- range $of := list "master" "worker" -}}
  {{- $own := printf
    "%s-agent-%s%s" $fullname $of (ternary "" (printf "-%d" $generation) (eq $generation 1)) -}}
  {{- $_ := set $secrets $of (get $agent (printf "%sSecret" $of) | default $own) -}}
  {{- $_ := set $names $of
    (printf "%s-%d.%s.%s.horovod.internal" $of $generation $fullname $.Release.Namespace) -}}
{{- end -}}
{{- $areOwn := not $agent.masterSecret -}}
{{- $masterMayMake := and $areOwn (not (empty .facts.serviceAccount)) -}}
{{- $_ := set .facts "keys"
  (dict "secrets" $secrets "names" $names "areOwn" $areOwn "masterMayMake" $masterMayMake) -}}
{{- end }}
