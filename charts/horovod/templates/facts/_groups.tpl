{{/* The worker groups, and what follows from all of them. */}}

{{/*
The worker groups, each merged with `worker`. A group has every key of `worker` and its name, too.
  groups          the worker groups
  groups[].volumes  the release's volumes and its own
  groups[].volumeMounts  the same of volumeMounts
  groups[].objectName  the prefix of its names
  groups[].valuesKey  the key of its values that the user writes: `worker` or `workerGroups[NAME]`
  groups[].grace  seconds to end
  groups[].maximum  the most workers that it may have, with spares
*/}}
{{- define "horovod.prepareGroups" -}}
{{- $values := .facts.values -}}
{{- $numbers := (include "horovod.effective" . | fromJson).worker -}}
{{- $defaults := (include "horovod.defaults" . | fromJson).worker
  | merge (dict "volumes" list "volumeMounts" list) -}}
{{- $groups := list -}}
{{- range ($values.workerGroups | default (list (dict "name" "worker"))) -}}
  {{- $group := deepCopy $values.worker -}}
  {{- $_ := set $group "volumes" $values.volumes -}}
  {{- $_ := set $group "volumeMounts" $values.volumeMounts -}}
  {{- include "horovod.mergeGroup" (dict "into" $group "from" .) -}}
  {{- include "horovod.addDefaults" (dict "into" $group "defaults" $defaults) -}}
  {{- /* spares: 0 means the same as no spares, so that the hash of the settings leaves out both. */ -}}
  {{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
  {{- $effective := pick $group "spares" "terminationGracePeriodSeconds" -}}
  {{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
  {{- $_ := set $group "objectName" (printf "%s-%s" $.facts.fullname $group.name) -}}
  {{- $key := ternary "worker" (printf "workerGroups[%s]" $group.name) (empty $values.workerGroups) -}}
  {{- $_ := set $group "valuesKey" $key -}}
  {{- $_ := set $group "grace" (int $effective.terminationGracePeriodSeconds) -}}
  {{- $_ := set $group "maximum" (add $group.number $effective.spares | int) -}}
  {{- $groups = append $groups $group -}}
{{- end -}}
{{- $_ := set .facts "groups" $groups -}}
{{- end }}

{{/*
Merges a group's values into a copy of the worker's, which it changes. A map merges key by key, and null, {}
or [] clears the worker's value. Entries of env, volumes and volumeMounts are added to those that are there.
Call with (dict "into" $copyOfTheWorker "from" $valuesOfTheGroup).
*/}}
{{- define "horovod.mergeGroup" -}}
{{- $worker := .into -}}
{{- $group := deepCopy .from -}}
{{- range $key := list "env" "volumes" "volumeMounts" -}}
  {{- with get $group $key -}}{{- $_ := set $group $key (concat (get $worker $key) .) -}}{{- end -}}
{{- end -}}
{{- with $group.image -}}
  {{- $images := dict "image" $worker.image "overrides" . -}}
  {{- $_ := set $worker "image" (include "horovod.mergedImage" $images | fromJson) -}}
{{- end -}}
{{- include "horovod.mergeInto" (dict "into" $worker "from" $group) -}}
{{- end }}

{{/*
  ranks           the ranks of all groups
  workers         the workers that the ranks need
  spares          the workers that wait
  fewestWorkers   the workers without which the run does not continue
  mayLoseWorkers  whether the run continues without a worker: a group has spares, or a minimum below its
                  number, which is the rule of Run.is_elastic in hvd_pods/shared/run.py, too (ADR 28)
*/}}
{{- define "horovod.prepareSizes" -}}
{{- $ranks := 0 -}}
{{- $workers := 0 -}}
{{- $maximum := 0 -}}
{{- $fewest := 0 -}}
{{- $mayLoseWorkers := false -}}
{{- range .facts.groups -}}
  {{- $ranks = add $ranks (mul .number .slots) -}}
  {{- $workers = add $workers .number -}}
  {{- $maximum = add $maximum .maximum -}}
  {{- /* An eviction does not prefer spares, so that a group without a minimum needs all of its pods. */ -}}
  {{- $fewest = add $fewest (.minimum | default .maximum) -}}
  {{- $isElastic := ne (int (.minimum | default .number)) (int .number) -}}
  {{- $mayLoseWorkers = or $mayLoseWorkers (gt .maximum (int .number)) $isElastic -}}
{{- end -}}
{{- $_ := set .facts "ranks" $ranks -}}
{{- $_ := set .facts "workers" $workers -}}
{{- $_ := set .facts "spares" (sub $maximum $workers) -}}
{{- $_ := set .facts "fewestWorkers" $fewest -}}
{{- $_ := set .facts "mayLoseWorkers" $mayLoseWorkers -}}
{{- end }}

{{/*
  groups[].securityContext  the chart's, with the capabilities that the group adds
*/}}
{{- define "horovod.prepareCapabilities" -}}
{{- range $group := .facts.groups -}}
  {{- $context := deepCopy $.facts.values.securityContext -}}
  {{- if .capabilities -}}
    {{- $capabilities := $context.capabilities | default dict -}}
    {{- $added := concat ($capabilities.add | default list) .capabilities | uniq -}}
    {{- $_ := set $context "capabilities" (merge (dict "add" $added) $capabilities) -}}
  {{- end -}}
  {{- $_ := set $group "securityContext" $context -}}
{{- end -}}
{{- end }}

{{/*
  podValues       the values of the pods by the key that the user writes: `master`, and each group's
*/}}
{{- define "horovod.preparePodValues" -}}
{{- $owners := dict "master" .facts.values.master -}}
{{- range .facts.groups -}}{{- $_ := set $owners .valuesKey . -}}{{- end -}}
{{- $_ := set .facts "podValues" $owners -}}
{{- end }}

{{/*
  groups[].tagOutput  the entry of HVD_TAG_OUTPUT in the group's env; {} without one
  tagOutput       the same of the first group: the groups may not differ in it
*/}}
{{- define "horovod.prepareTags" -}}
{{- range $group := .facts.groups -}}
  {{- $variable := dict "env" .env "name" "HVD_TAG_OUTPUT" -}}
  {{- $_ := set $group "tagOutput" (include "horovod.envEntry" $variable | fromJson) -}}
{{- end -}}
{{- $_ := set .facts "tagOutput" (first .facts.groups).tagOutput -}}
{{- end }}

{{/*
  groups[].gpus   the GPUs of a worker
  groups[].gpuResources  their resources, such as two kinds of MIG
  groups[].gpuMakers  the domains of their resources, such as nvidia.com
  groups[].hasDevices  whether a worker has devices of any kind, or may have
*/}}
{{- define "horovod.prepareDevices" -}}
{{- $pattern := printf "^(%s)$" .facts.shared.gpus -}}
{{- range $group := .facts.groups -}}
  {{- $gpus := 0 -}}
  {{- $gpuResources := list -}}
  {{- $makers := list -}}
  {{- $hasDevices := or .podSpec.resourceClaims .podSpec.runtimeClassName -}}
  {{- range $resource, $count := (.resources).limits -}}
    {{- /* A limit of 0 is no device. */ -}}
    {{- if int $count -}}
      {{- $hasDevices = or $hasDevices (contains "/" $resource) -}}
      {{- if regexMatch $pattern $resource -}}
        {{- $gpus = add $gpus (int $count) -}}
        {{- $gpuResources = append $gpuResources $resource -}}
        {{- $makers = append $makers (dir $resource) | uniq -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $group "gpus" (int $gpus) -}}
  {{- $_ := set $group "gpuResources" $gpuResources -}}
  {{- $_ := set $group "gpuMakers" $makers -}}
  {{- $_ := set $group "hasDevices" (not (empty $hasDevices)) -}}
{{- end -}}
{{- end }}

{{/*
  ranksChooseFusion   whether the ranks choose the size of Horovod's fusion buffer
*/}}
{{- define "horovod.prepareFusion" -}}
{{- /* Ranks may choose a size where all of them choose the same one. Known here is what a rank cannot see:
whether all groups run over MPI and on CPUs, and have the same variables from env, a Secret and the image. A
rank sees its environment, and decides the size (hvd_pods/rank/fusion.py). */ -}}
{{- $sources := list -}}
{{- $haveDevices := false -}}
{{- range .facts.groups -}}
  {{- $variable := dict "env" .env "name" "HOROVOD_FUSION_THRESHOLD" -}}
  {{- $threshold := include "horovod.envEntry" $variable | fromJson -}}
  {{- $sources = append $sources (list (empty $threshold) .envFrom .image | toJson) -}}
  {{- $haveDevices = or $haveDevices .hasDevices -}}
{{- end -}}
{{- $areAlike := eq (len (uniq $sources)) 1 -}}
{{- $isMpi := eq .facts.values.launch.mode "mpirun" -}}
{{- $_ := set .facts "ranksChooseFusion" (and $isMpi (not $haveDevices) $areAlike) -}}
{{- end }}

{{/*
  groups[].tuning  the values of `horovod` as variables, without those that the group's env sets
*/}}
{{- define "horovod.prepareTuning" -}}
{{- range $group := .facts.groups -}}
  {{- $tuning := list -}}
  {{- range include "horovod.tuningVariables" (dict "root" $ "group" .) | fromYamlArray -}}
    {{- if not (include "horovod.envEntry" (dict "env" $group.env "name" .name) | fromJson) -}}
      {{- $tuning = append $tuning . -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $group "tuning" $tuning -}}
{{- end -}}
{{- end }}

{{/*
The values of `horovod` as variables, as YAML. Kubernetes expands $(OUTPUT_PATH), because it comes earlier in
the list.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.tuningVariables" -}}
{{- $horovod := .root.facts.values.horovod -}}
{{- $output := include "horovod.envEntry" (dict "env" .group.env "name" "OUTPUT_PATH") | fromJson -}}
{{- if $horovod.autotune }}
- {name: HOROVOD_AUTOTUNE, value: "1"}
{{- if $output }}
- {name: HOROVOD_AUTOTUNE_LOG, value: "$(OUTPUT_PATH)/horovod-autotune.csv"}
{{- end }}
{{- end }}
{{- with $horovod.cycleTimeMs }}
- {name: HOROVOD_CYCLE_TIME, value: {{ quote . }}}
{{- end }}
{{- /* 0 is a valid threshold: it disables fusion. */}}
{{- if not (kindIs "invalid" $horovod.fusionThresholdMiB) }}
- {name: HOROVOD_FUSION_THRESHOLD, value: {{ mul $horovod.fusionThresholdMiB 1048576 | quote }}}
{{- end }}
{{- if $horovod.timeline }}
- {name: HOROVOD_TIMELINE, value: "$(OUTPUT_PATH)/horovod-timeline.json"}
{{- end }}
{{- end }}

{{/*
The gang: all pods of the run, which start together or not at all. Each scheduler that `gang` may name has a
definition, as in scheduling/_volcano.tpl.
  gangSize        the pods of the gang: the master and all workers. The run needs each; spares count, or a
                  scheduler could leave out the master
  podGroup        apiVersion, name and spec of the PodGroup; {} without a gang. Without apiVersion, the
                  cluster has no such API
  gangFields      the fields of a pod spec that name the PodGroup, as YAML
  gangAnnotations  the annotations of a pod that name it
  schedulerName   the scheduler of the pods; empty for the cluster's default
  kueue           Kueue's LocalQueue; empty without one, as when queueName is a queue of the gang's scheduler
  hasTest         whether there is a pod of `helm test`
*/}}
{{- define "horovod.prepareGang" -}}
{{- $facts := .facts -}}
{{- $values := $facts.values -}}
{{- $_ := set $facts "gangSize" (add 1 $facts.workers $facts.spares) -}}
{{- $gang := dict -}}
{{- with $values.gang -}}
  {{- $gang = include (printf "horovod.gangOf%s" .) $ | fromYaml -}}
{{- end -}}
{{- $_ := set $facts "podGroup" ($gang.podGroup | default dict) -}}
{{- $_ := set $facts "gangFields" $gang.podFields -}}
{{- $_ := set $facts "gangAnnotations" ($gang.annotations | default dict) -}}
{{- $_ := set $facts "schedulerName" ($values.schedulerName | default $gang.schedulerName) -}}
{{- $_ := set $facts "kueue" (ternary "" $values.queueName (hasKey $gang "hasQueues")) -}}
{{- /* It would wait in the queue for workers that nobody has scaled up. */ -}}
{{- $_ := set $facts "hasTest" (and $facts.serviceAccount (not $facts.kueue)) -}}
{{- end }}
