{{/* Refusals about the end of the run. */}}
{{- define "horovod.checkEnd" -}}
{{- if and (not (kindIs "invalid" .Values.master.ttlSecondsAfterFinished)) (ne .Values.cleanup "Always") -}}
  {{- $why := "the workers of a failed run would remain after the Job is removed; set cleanup to Always" -}}
  {{- fail (printf "master.ttlSecondsAfterFinished is set but cleanup is %s: %s" .Values.cleanup $why) -}}
{{- end -}}
{{- if and (eq .Values.cleanup "Always") (not .facts.serviceAccount) -}}
  {{- $none := "there is no serviceAccount (serviceAccount.create is false, serviceAccount.name empty)" -}}
  {{- fail (printf "cleanup is Always but %s: the master could not scale the workers" $none) -}}
{{- end -}}
{{- end }}
