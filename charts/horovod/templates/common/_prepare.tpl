{{/*
The facts: what follows from the values and from what the cluster has, computed once.

Every template file includes horovod.prepare first. Helm renders all files of a chart with the same root, so
the first call does the work and keeps the facts in .facts, which later templates read. Only the definitions
that horovod.prepare includes, in this order, add facts. Each reads those of the ones above it:

prepare
  shared          resources.json: what hvdchart and the pods know of names, limits and devices, too
  hasAccess       whether Helm can read the cluster
  statefulSets    the StatefulSets of the namespace, by name
  effective       .Values, with a number in the place of each null that stands for one
prepareNames
  fullname        the prefix of all object names
  name            the label that tells two dependencies of one release apart
  serviceAccount  the master's ServiceAccount; empty when the master has no access to the API
  record          the ConfigMap in which the master records how the last run ended, and which master controls
                  the workers; the chart does not set its data
  kueue           Kueue's LocalQueue; empty without one
  hasTest         whether there is a pod of `helm test`
preparePrograms
  programs        of the archive that `make generate` makes of files/hvd_pods: its configMap, and the command
                  that unpacks it and then runs the Python whose arguments follow, in the place of
                  files/unpack.py
prepareKeys
  keys            secrets and names (in the certificates) of master and worker, areOwn: whether they are the
                  chart's own, masterMayMake: whether the first master may make them, and data: that of the
                  chart's own Secrets
preparePolicies
  hasPolicy       whether master and workers have a NetworkPolicy
  hasTensorboardPolicy  whether TensorBoard has one
prepareGroups
  groups          the worker groups. A group has every key of `worker`, and: name, volumes, volumeMounts,
                  objectName (the prefix of its names), grace (seconds to end) and maximum (the most workers
                  that it may have, with spares)
  ranks           the ranks of all groups
  workers         the workers that the ranks need
  spares          the workers that wait
  fewestWorkers   the workers without which the run does not continue
prepareGang
  gangSize        the pods of the gang
  gangApi         the API of its PodGroup; empty where the cluster has none of Kubernetes' own
  podGroup        the name of the PodGroup
  schedulerName   the scheduler of the pods; empty for the cluster's default
prepareCode
  code            its files by name; size: their characters; version, sha256 and configMap, which are empty
                  without code; data and binaryData: the content of the ConfigMap
prepareScript
  command         the training command
  resultsPath     what results.command stores at the end
  logDir          what TensorBoard reads
prepareRun
  id              a hash of the values that identify the run
  settingsHash    a hash of all settings of the run
findJob           what this and the next two find is empty without access to a cluster
  job             the run's Job that an upgrade keeps, because it has finished or has these settings
readEnd
  outcome         how the run ended: Finished, Failed, or empty while it has not ended
  recordedEnd     what the record says of this end; empty while it says nothing of it
  jobIsGone       whether the run has ended and its Job has been removed, so that no Job is rendered
  workersAreDone  whether it has ended and has no workers any more
findSets
  sets            the StatefulSets that the upgrade keeps with the Job, or after it has been removed, by name
findKeptPrograms
  keptPrograms    the ConfigMaps of other programs that kept pods mount: those of the chart version that
                  created them
findNodes         these keys of each group
  staged          the ConfigMap of the nodes that have the group's data; empty without one
  stagedNodes     these nodes
prepareWorkers    these keys of each group
  statefulSet     the name of the group's StatefulSet of this run
  labels, annotations  of its pods
  pod             the pod spec
  revision        a hash of the pod template
prepareMaster
  masterPod       the template of the master's pod
  jobName         the name of the run's Job
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "facts") -}}
  {{- $defaults := include "horovod.defaults" . | fromJson -}}
  {{- include "horovod.addDefaults" (dict "into" .Values "defaults" $defaults) -}}
  {{- /* Null stays in .Values, from which the hashes of a run are made. */ -}}
  {{- $numbers := include "horovod.effective" . | fromJson -}}
  {{- $effective := deepCopy .Values -}}
  {{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
  {{- $statefulSets := dict -}}
  {{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
    {{- $_ := set $statefulSets .metadata.name . -}}
  {{- end -}}
  {{- $_ := set . "facts" (dict
    "shared" (.Files.Get "files/hvd_pods/shared/resources.json" | fromJson)
    "hasAccess" (lookup "v1" "ServiceAccount" .Release.Namespace "default" | empty | not)
    "statefulSets" $statefulSets
    "effective" $effective
  ) -}}
  {{- /* Derive what follows from the values. */ -}}
  {{- include "horovod.prepareNames" . -}}
  {{- include "horovod.preparePrograms" . -}}
  {{- include "horovod.prepareKeys" . -}}
  {{- include "horovod.preparePolicies" . -}}
  {{- include "horovod.prepareGroups" . -}}
  {{- include "horovod.prepareGang" . -}}
  {{- include "horovod.prepareCode" . -}}
  {{- include "horovod.prepareScript" . -}}
  {{- include "horovod.checks" . -}}
  {{- /* The values are free of contradictions here. Find what the cluster has of the run. */ -}}
  {{- include "horovod.prepareRun" . -}}
  {{- include "horovod.findJob" . -}}
  {{- include "horovod.readEnd" . -}}
  {{- include "horovod.findSets" . -}}
  {{- include "horovod.findKeptPrograms" . -}}
  {{- include "horovod.checkKeptPrograms" . -}}
  {{- include "horovod.findNodes" . -}}
  {{- /* Render the pods. */ -}}
  {{- include "horovod.prepareWorkers" . -}}
  {{- include "horovod.prepareMaster" . -}}
{{- end -}}
{{- end }}
