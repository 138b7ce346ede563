{{/*
Refusals of values that contradict each other. The schema says what it can; these are the rest, each with
both keys and the remedy. horovod.prepare runs them before any pod is rendered: none creates an object. Two
others refuse values later: horovod.checkKeptPrograms when the run that the upgrade keeps has been found, and
horovod.env, because it alone has the chart's variables beside those of the values.
*/}}
{{- define "horovod.checks" -}}
{{- include "horovod.checkNames" . -}}
{{- include "horovod.checkGroups" . -}}
{{- include "horovod.checkPods" . -}}
{{- include "horovod.checkLaunch" . -}}
{{- include "horovod.checkNetwork" . -}}
{{- include "horovod.checkMonitoring" . -}}
{{- include "horovod.checkFiles" . -}}
{{- include "horovod.checkGang" . -}}
{{- include "horovod.checkCluster" . -}}
{{- end }}

{{/*
Refuses the values. The argument has:
  what  the values that contradict each other, with their keys
  why   the reason, if the reader may not know it
  do    the remedy, unless the reason implies it
*/}}
{{- define "horovod.refuse" -}}
{{- compact (list .why .do) | join "; " | printf "%s: %s" .what | fail -}}
{{- end }}
