{{/* Refusals of the Secrets with the keys of master and workers. */}}

{{- define "horovod.checkKeySecrets" -}}
{{- $agent := .facts.values.agent -}}
{{- $secrets := printf
  "agent.masterSecret is %q and agent.workerSecret is %q" $agent.masterSecret $agent.workerSecret -}}
{{- if ne (empty $agent.masterSecret) (empty $agent.workerSecret) -}}
  {{- include "horovod.refuse" (dict
    "what" $secrets
    "do" "give both, or neither and the chart makes the keys") -}}
{{- end -}}
{{- if and $agent.masterSecret (eq $agent.masterSecret $agent.workerSecret) -}}
  {{- include "horovod.refuse" (dict
    "what" $secrets
    "do" "give two Secrets, because the workers would have the master's key") -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkKeysExist" -}}
{{- $namespace := .Release.Namespace -}}
{{- range $key, $name := pick .facts.values.agent "masterSecret" "workerSecret" -}}
  {{- $arguments := dict "root" $ "kind" "Secret" "name" $name -}}
  {{- if and $name (not (include "horovod.createsObject" $arguments)) -}}
    {{- $secret := lookup "v1" "Secret" $namespace $name | default dict -}}
    {{- range $item := list "tls.crt" "tls.key" "ca.crt" -}}
      {{- if not (dig "data" $item "" $secret) -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "agent.%s is %q but namespace %q has no such Secret with the key %q"
            $key $name $namespace $item)
          "do" "create it first, or leave both Secrets of agent empty and the chart makes the keys") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
