{{/* What all templates read: the values complete, each worker group merged, and what follows from them, computed once. */}}

{{/*
Every template file includes this first. Helm renders all files of a chart with the same root, so the first call does
the work and keeps the result there. Later templates read these fields of .horovod, and those that the definitions
beside the components add, in this order:
  effective    .Values, with a number in the place of each null that stands for one
  known        resources.json: what hvdchart and the pods know of names, limits and devices, too
  metricsPort  the port of the metrics of master and workers
  hasAccess    whether Helm can read the cluster
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "horovod") -}}
{{- $known := .Files.Get "files/hvd_pods/common/resources.json" | fromJson -}}
{{- /* The namespace's default ServiceAccount proves that Helm can read the cluster. */ -}}
{{- $hasAccess := not (empty (lookup "v1" "ServiceAccount" .Release.Namespace "default")) -}}
{{- $_ := set . "horovod" (dict "known" $known "metricsPort" 9400 "hasAccess" $hasAccess) -}}
{{- $defaults := include "horovod.defaults" . | fromJson -}}
{{- include "horovod.restoreDefaults" (dict "into" .Values "defaults" $defaults) -}}
{{- /* Null stays in .Values, from which the hashes of a run are made. */ -}}
{{- $effective := deepCopy .Values -}}
{{- include "horovod.restoreDefaults" (dict "into" $effective "defaults" (include "horovod.effective" . | fromJson)) -}}
{{- $_ := set .horovod "effective" $effective -}}
{{- include "horovod.prepareNames" . -}}
{{- include "horovod.preparePrograms" . -}}
{{- include "horovod.prepareKeys" . -}}
{{- include "horovod.preparePolicies" . -}}
{{- include "horovod.prepareGroups" (dict "root" . "defaults" $defaults) -}}
{{- include "horovod.prepareGang" . -}}
{{- include "horovod.prepareCode" . -}}
{{- include "horovod.prepareCommand" . -}}
{{- include "horovod.preparePaths" . -}}
{{- include "horovod.checks" . -}}
{{- include "horovod.findRun" . -}}
{{- include "horovod.findKeptPrograms" . -}}
{{- include "horovod.checksOfRun" . -}}
{{- /* The values are free of contradictions here, and what the cluster has of the run is known. */ -}}
{{- include "horovod.prepareWorkers" . -}}
{{- include "horovod.prepareMaster" . -}}
{{- end -}}
{{- end }}
