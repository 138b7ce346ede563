{{/*
What all templates read: the values complete, each worker group merged, and what follows from them, computed
once.
*/}}

{{/*
Every template file includes this first. Helm renders all files of a chart with the same root, so the first
call does the work and keeps the result in .facts, which later templates read. Each step reads what an earlier
one has added, and lists what it adds itself beside its definition. A definition whose name begins with
prepare or find adds to .facts; one whose name begins with check refuses values; one that is named by a noun
returns something.

Adds to .facts:
  shared       resources.json: what hvdchart and the pods know of names, limits and devices, too
  hasAccess    whether Helm can read the cluster
  effective    .Values, with a number in the place of each null that stands for one
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "facts") -}}
  {{- $shared := .Files.Get "files/hvd_pods/common/resources.json" | fromJson -}}
  {{- /* The namespace's default ServiceAccount proves that Helm can read the cluster. */ -}}
  {{- $hasAccess := not (empty (lookup "v1" "ServiceAccount" .Release.Namespace "default")) -}}
  {{- $_ := set . "facts" (dict "shared" $shared "hasAccess" $hasAccess) -}}
  {{- $defaults := include "horovod.defaults" . | fromJson -}}
  {{- include "horovod.restoreDefaults" (dict "into" .Values "defaults" $defaults) -}}
  {{- /* Null stays in .Values, from which the hashes of a run are made. */ -}}
  {{- $effective := deepCopy .Values -}}
  {{- include "horovod.restoreDefaults"
    (dict "into" $effective "defaults" (include "horovod.effective" . | fromJson)) -}}
  {{- $_ := set .facts "effective" $effective -}}
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
