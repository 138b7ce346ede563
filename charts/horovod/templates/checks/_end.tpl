{{/* Refusals about the end of the run. */}}
{{- define "horovod.checkEnd" -}}
{{- if and (not (kindIs "invalid" .Values.master.ttlSecondsAfterFinished)) (ne .Values.cleanup "Always") -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "master.ttlSecondsAfterFinished is set but cleanup is %s" .Values.cleanup)
    "why" "the workers of a failed run would remain after the Job is removed"
    "do" "set cleanup to Always") -}}
{{- end -}}
{{- if and (eq .Values.cleanup "Always") (not .facts.serviceAccount) -}}
  {{- include "horovod.refuse" (dict
    "what" "cleanup is Always but serviceAccount.create is false and serviceAccount.name is empty"
    "why" "without a ServiceAccount, the master could not scale the workers") -}}
{{- end -}}
{{- end }}
