{{/* What all templates read: the values complete, each worker group merged, and what follows from them, computed once. */}}

{{/*
Every template file includes this first. Helm renders all files of a chart with the same root, so the first call does
the work and keeps the result there. Later templates read these fields of .horovod, and those that the definitions
beside the components add (horovod.preparePrograms, prepareKeys, preparePolicies, prepareGang, prepareCode, findRun,
findKeptPrograms):
  effective             .Values, with a number in the place of each null that stands for one
  known                 resources.json: what hvdchart and the pods know of names, limits and devices, too
  fullname, name        the prefix of all object names, and the label that tells two dependencies of one release apart
  serviceAccount        the master's ServiceAccount; empty when the master has no access to the API
  record                the ConfigMap in which the master records how the last run ended, and which master controls the
                        workers; the chart does not set its data
  kueue                 Kueue's LocalQueue; empty without one
  metricsPort           the port of the metrics of master and workers
  hasAccess             whether Helm can read the cluster
  hasTest               whether there is a pod of `helm test`
  command, mode         the training command, and what starts it: launch.mode, or direct for a line of horovodrun
  isHorovodrunLine      whether the command is a line of horovodrun, whose ranks mode direct starts
  resultsPath, logDir   what is stored at the end, and what TensorBoard reads
  stagingKey            a hash of the source of the data
  nodeLists             the ConfigMaps of nodes that have them
  stallPeriod           seconds between two looks of Horovod for ranks that keep others waiting
  fusesByRanks          whether ranks may choose the size of Horovod's fusion buffer
  ranks, hosts, spares  the ranks of all groups, the workers that they need, and the workers that wait
  groups                the worker groups. A group has every key of `worker`, and: name, volumes, volumeMounts,
                        statefulSet and account (names of its objects), grace (seconds to end), maximum (the most hosts
                        that it may have, with spares), staged (the list of the nodes that have its data),
                        pod (its pod spec) and revision (a hash of it)
  masterPod, jobName    the template of the master's pod, and the name of the run's Job
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "horovod") -}}
{{- $known := .Files.Get "files/hvd_pods/common/resources.json" | fromJson -}}
{{- /* The namespace's default ServiceAccount proves that Helm can read the cluster. */ -}}
{{- $hasAccess := not (empty (lookup "v1" "ServiceAccount" .Release.Namespace "default")) -}}
{{- $_ := set . "horovod" (dict "groups" list "known" $known "metricsPort" 9400 "hasAccess" $hasAccess) -}}
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

{{/* Names of objects. */}}
{{- define "horovod.prepareNames" -}}
{{- $facts := .horovod -}}
{{- /* As in charts that `helm create` makes, nameOverride is left out when the release's name contains it. */ -}}
{{- $suffix := .Values.nameOverride -}}
{{- if and $suffix (contains $suffix .Release.Name) -}}{{- $suffix = "" -}}
{{- else if and (not $suffix) (ne .Chart.Name "horovod") -}}{{- $suffix = .Chart.Name -}}
{{- end -}}
{{- $fullname := .Values.fullnameOverride | default (list .Release.Name $suffix | compact | join "-") -}}
{{- $account := ternary (printf "%s-master" $fullname) "" .Values.serviceAccount.create -}}
{{- $_ := set $facts "fullname" $fullname -}}
{{- $_ := set $facts "name" (.Values.nameOverride | default .Chart.Name) -}}
{{- $_ := set $facts "serviceAccount" (.Values.serviceAccount.name | default $account) -}}
{{- $_ := set $facts "record" (printf "%s-run" $fullname) -}}
{{- /* With Volcano, queueName is a queue of Volcano. */ -}}
{{- $_ := set $facts "kueue" (ternary "" .Values.queueName (eq .Values.gang "Volcano")) -}}
{{- /* It would wait in the queue for workers that nobody has scaled up. */ -}}
{{- $_ := set $facts "hasTest" (and $facts.serviceAccount (not $facts.kueue)) -}}
{{- end }}

{{/* The worker groups. Call with (dict "root" $ "defaults" $defaultsOfTheChart). */}}
{{- define "horovod.prepareGroups" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $facts := .root.horovod -}}
{{- $defaults := dict "worker.volumes" list "worker.volumeMounts" list -}}
{{- range $path, $default := .defaults -}}
{{- if hasPrefix "worker." $path -}}{{- $_ := set $defaults $path $default -}}{{- end -}}
{{- end -}}
{{- $numbers := include "horovod.effective" . | fromJson -}}
{{- $ranks := 0 -}}
{{- $hosts := 0 -}}
{{- $spares := 0 -}}
{{- range ($values.workerGroups | default (list (dict "name" "worker"))) -}}
{{- $group := deepCopy $values.worker -}}
{{- include "horovod.mergeGroup" (dict "root" $root "group" $group "own" .) -}}
{{- include "horovod.restoreDefaults" (dict "into" (dict "worker" $group) "defaults" $defaults) -}}
{{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
{{- if not $group.minimum -}}{{- $_ := unset $group "minimum" -}}{{- end -}}
{{- $effective := dict "worker" (deepCopy $group) -}}
{{- include "horovod.restoreDefaults" (dict "into" $effective "defaults" $numbers) -}}
{{- $account := ternary (printf "%s-worker" $facts.fullname) "" $group.serviceAccount.create -}}
{{- $_ := set $group "maximum" (add $group.number $effective.worker.spares | int) -}}
{{- $_ := set $group "statefulSet" (printf "%s-%s" $facts.fullname $group.name) -}}
{{- $_ := set $group "account" ($group.serviceAccount.name | default $account) -}}
{{- $_ := set $group "grace" (int $effective.worker.terminationGracePeriodSeconds) -}}
{{- $_ := set $facts "groups" (append $facts.groups $group) -}}
{{- $ranks = add $ranks (mul $group.number $group.slots) -}}
{{- $hosts = add $hosts $group.number -}}
{{- $spares = add $spares $effective.worker.spares -}}
{{- end -}}
{{- $_ := set $facts "ranks" $ranks -}}
{{- $_ := set $facts "hosts" $hosts -}}
{{- $_ := set $facts "spares" $spares -}}
{{- end }}

{{/* The training command, and what starts it. */}}
{{- define "horovod.prepareCommand" -}}
{{- /* A single Python file is the command itself. */ -}}
{{- $files := keys .horovod.code.files -}}
{{- $command := .Values.master.args -}}
{{- $isOneScript := and (eq (len $files) 1) (hasSuffix ".py" (first $files)) (not .Values.code.archive) -}}
{{- if and $isOneScript (not $command) (ne .Values.launch.mode "custom") -}}
{{- $command = list "python3" (first $files) -}}
{{- end -}}
{{- $_ := set .horovod "command" $command -}}
{{- /* Unless it is a custom command, the master starts the ranks of a line of horovodrun itself
(hvd_pods/common/horovodrun.py). */ -}}
{{- $mode := .Values.launch.mode -}}
{{- $isHorovodrunLine := and (ne $mode "custom") (first $command | default "" | base | eq "horovodrun") -}}
{{- $_ := set .horovod "isHorovodrunLine" $isHorovodrunLine -}}
{{- $_ := set .horovod "mode" (ternary "direct" $mode $isHorovodrunLine) -}}
{{- end }}

{{/* Directories, and the source of the data in one of them. */}}
{{- define "horovod.preparePaths" -}}
{{- $facts := .horovod -}}
{{- $output := "" -}}
{{- range .Values.worker.env -}}
{{- if eq .name "OUTPUT_PATH" -}}{{- $output = .value | default "" -}}{{- end -}}
{{- end -}}
{{- $_ := set $facts "resultsPath" (.Values.results.path | default $output) -}}
{{- $_ := set $facts "logDir" (.Values.tensorboard.logDir | default $output) -}}
{{- $source := pick .Values.staging "image" "command" "env" -}}
{{- $_ := set $facts "stagingKey" (toJson $source | sha256sum | trunc 16) -}}
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
