{{/* Refusals of how the run ends: who scales the workers, and whether the Job is removed before. */}}

{{- define "horovod.checkEnd" -}}
{{- $timeToLive := .facts.values.master.ttlSecondsAfterFinished -}}
{{- $cleanup := .facts.values.cleanup -}}
{{- if and (not (kindIs "invalid" $timeToLive)) (ne $cleanup "Always") -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "master.ttlSecondsAfterFinished is set but cleanup is %s" $cleanup)
    "why" "the workers of a failed run would remain after the Job is removed"
    "do" "set cleanup to Always") -}}
{{- end -}}
{{- if and (eq $cleanup "Always") (not .facts.serviceAccount) -}}
  {{- include "horovod.refuse" (dict
    "what" "cleanup is Always but serviceAccount.create is false and serviceAccount.name is empty"
    "why" "without a ServiceAccount, the master could not scale the workers") -}}
{{- end -}}
{{- end }}
