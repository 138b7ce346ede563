{{/*
Refusals of values that contradict each other, and of values that the cluster contradicts. The schema says
what it can; these are the rest, each with both keys and the remedy. Each file has the checks of one subject.
horovod.prepare runs them before any pod is rendered: none creates an object. Two others refuse values later:
horovod.checkKeptPrograms when the run that the upgrade keeps has been found, and horovod.env, because it
alone has the chart's variables beside those of the values. `make lint` finds a check that this list lacks.
*/}}
{{- define "horovod.checks" -}}
{{- include "horovod.checkObjectNames" . -}}
{{- include "horovod.checkGroupNames" . -}}
{{- include "horovod.checkReservedVariables" . -}}
{{- include "horovod.checkReservedVolumes" . -}}
{{- include "horovod.checkReservedPaths" . -}}
{{- include "horovod.checkReservedLabels" . -}}
{{- include "horovod.checkSelectorLabels" . -}}
{{- include "horovod.checkContainerNames" . -}}
{{- include "horovod.checkPodFields" . -}}
{{- include "horovod.checkRunSize" . -}}
{{- include "horovod.checkMinimum" . -}}
{{- include "horovod.checkNamedWorkers" . -}}
{{- include "horovod.checkGpuMakers" . -}}
{{- include "horovod.checkSlots" . -}}
{{- include "horovod.checkDevicePlugin" . -}}
{{- include "horovod.checkImages" . -}}
{{- include "horovod.checkCapabilities" . -}}
{{- include "horovod.checkRootUser" . -}}
{{- include "horovod.checkSpread" . -}}
{{- include "horovod.checkGang" . -}}
{{- include "horovod.checkCustomMode" . -}}
{{- include "horovod.checkCustomSettings" . -}}
{{- include "horovod.checkDirectMode" . -}}
{{- include "horovod.checkProgram" . -}}
{{- include "horovod.checkBinding" . -}}
{{- include "horovod.checkTags" . -}}
{{- include "horovod.checkEnd" . -}}
{{- include "horovod.checkHostNetwork" . -}}
{{- include "horovod.checkNodePorts" . -}}
{{- include "horovod.checkPortsOfPod" . -}}
{{- include "horovod.checkKeySecrets" . -}}
{{- include "horovod.checkTimeline" . -}}
{{- include "horovod.checkTensorboard" . -}}
{{- include "horovod.checkLogVolume" . -}}
{{- include "horovod.checkTensorboardClients" . -}}
{{- include "horovod.checkMetrics" . -}}
{{- include "horovod.checkMetricsClients" . -}}
{{- include "horovod.checkPrograms" . -}}
{{- include "horovod.checkCode" . -}}
{{- include "horovod.checkStaging" . -}}
{{- include "horovod.checkStagingMounts" . -}}
{{- if .facts.hasAccess -}}
  {{- include "horovod.checkKeysExist" . -}}
  {{- include "horovod.checkPortsInUse" . -}}
  {{- include "horovod.checkSelectors" . -}}
  {{- include "horovod.checkClaimsExist" . -}}
  {{- include "horovod.checkAccountsExist" . -}}
{{- end -}}
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
