{{/* What all templates read: the values complete, each worker group merged, and what follows from them, computed once. */}}

{{/*
Every template file includes this first. Helm renders all files of a chart with the same root, so the first call does
the work and keeps the result there. Later templates read these fields of .horovod, and those that the definitions
beside the components add, in this order:
  effective             .Values, with a number in the place of each null that stands for one
  known                 resources.json: what hvdchart and the pods know of names, limits and devices, too
  metricsPort           the port of the metrics of master and workers
  hasAccess             whether Helm can read the cluster
  nodeLists             the ConfigMaps of nodes that have the data
  stallPeriod           seconds between two looks of Horovod for ranks that keep others waiting
  fusesByRanks          whether ranks may choose the size of Horovod's fusion buffer
  groups                gets in each group staged (the list of the nodes that have its data), pod (its pod spec) and
                        revision (a hash of it)
  masterPod, jobName    the template of the master's pod, and the name of the run's Job
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
{{- include "horovod.prepareVariables" . -}}
{{- include "horovod.preparePods" . -}}
{{- end -}}
{{- end }}

{{/* What variables of the workers say of the whole run. */}}
{{- define "horovod.prepareVariables" -}}
{{- $timeout := int .horovod.effective.launch.stallTimeoutSeconds -}}
{{- /* Horovod names a rank after one to four periods, a minute with 15 s: it finds some tensors late only after two. */ -}}
{{- $_ := set .horovod "stallPeriod" (ternary (max 1 (min 15 (div $timeout 2))) 15 (gt $timeout 0)) -}}
{{- $_ := set .horovod "fusesByRanks" (include "horovod.fusesByRanks" . | eq "yes") -}}
{{- end }}

{{/* The pods. The values are free of contradictions here, and what the cluster has of the run is known. */}}
{{- define "horovod.preparePods" -}}
{{- $facts := .horovod -}}
{{- range prepend $facts.groups .Values.master -}}
{{- include "horovod.addMetadata" (dict "root" $ "of" .) -}}
{{- end -}}
{{- $staged := list -}}
{{- range $facts.groups -}}
{{- /* A master in a queue cannot replace the pods of the run before, so that each run has StatefulSets of its own. */ -}}
{{- if $facts.kueue -}}
{{- $_ := set . "statefulSet" (printf "%s-%s" .statefulSet (trunc 8 $facts.settings)) -}}
{{- end -}}
{{- $this := dict "root" $ "group" . -}}
{{- if and (ne .spread "None") (not (hasKey .affinity "podAntiAffinity")) -}}
{{- $_ := set .affinity "podAntiAffinity" (include "horovod.spread" $this | fromYaml) -}}
{{- end -}}
{{- $_ := set . "env" (concat .env (include "horovod.tuningVariables" $this | fromJsonArray)) -}}
{{- $_ := set . "pod" (include "horovod.workerPodSpec" $this) -}}
{{- /* The revision names the version of the keys, and tells the master which pods are current. A StatefulSet that the
upgrade keeps keeps its own. */ -}}
{{- $content := list .podLabels .podAnnotations | toJson | printf "%s %s" .pod -}}
{{- $_ := set . "revision" (sha256sum $content | trunc 10) -}}
{{- with get $facts.sets .statefulSet -}}
{{- $_ := get .spec.template.metadata.labels "horovod/revision" | set $this.group "revision" -}}
{{- end -}}
{{- $_ := set . "staged" (include "horovod.nodeList" $this) -}}
{{- $staged = append $staged .staged -}}
{{- if .staged -}}{{- include "horovod.placeOnStaged" $this -}}{{- end -}}
{{- end -}}
{{- $_ := set $facts "nodeLists" (without (uniq $staged) "") -}}

{{- /* A new name of a Job has a hash of the pod template, because Kubernetes allows no change of a Job's pods. Without a
ServiceAccount no record keeps another Job from repeating the run, so that the hash is that of the settings only. */ -}}
{{- $_ := set $facts "masterPod" (include "horovod.masterPod" .) -}}
{{- $content := ternary $facts.masterPod $facts.settings (ne $facts.serviceAccount "") -}}
{{- $name := printf "%s-master-%s" $facts.fullname (sha256sum $content | trunc 8) -}}
{{- $_ := set $facts "jobName" (dig "metadata" "name" $name $facts.job) -}}
{{- end }}
