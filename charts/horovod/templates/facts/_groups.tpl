{{/* The worker groups, and what follows from all of them. */}}

{{/*
The worker groups, each merged with `worker`. A group has every key of `worker` and its name, too.
  groups          the worker groups
  groups[].volumes  the release's volumes and its own
  groups[].volumeMounts  the same of volumeMounts
  groups[].objectName  the prefix of its names
  groups[].securityContext  the chart's, with the capabilities that the group adds
  groups[].grace  seconds to end
  groups[].maximum  the most workers that it may have, with spares
  ranks           the ranks of all groups
  workers         the workers that the ranks need
  spares          the workers that wait
  fewestWorkers   the workers without which the run does not continue
*/}}
{{- define "horovod.prepareGroups" -}}
{{- $facts := .facts -}}
{{- $defaults := (include "horovod.defaults" . | fromJson).worker
  | merge (dict "volumes" list "volumeMounts" list) -}}
{{- $numbers := (include "horovod.effective" . | fromJson).worker -}}
{{- $groups := list -}}
{{- $ranks := 0 -}}
{{- $workers := 0 -}}
{{- $spares := 0 -}}
{{- $fewest := 0 -}}
{{- range (.facts.values.workerGroups | default (list (dict "name" "worker"))) -}}
  {{- $group := deepCopy $.facts.values.worker -}}
  {{- $_ := set $group "volumes" $.facts.values.volumes -}}
  {{- $_ := set $group "volumeMounts" $.facts.values.volumeMounts -}}
  {{- include "horovod.mergeGroup" (dict "into" $group "from" .) -}}
  {{- include "horovod.addDefaults" (dict "into" $group "defaults" $defaults) -}}
  {{- /* spares: 0 means the same as no spares, so that the hash of the settings leaves out both. */ -}}
  {{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
  {{- $effective := pick $group "spares" "terminationGracePeriodSeconds" -}}
  {{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
  {{- $context := deepCopy $.facts.values.securityContext -}}
  {{- with $group.capabilities -}}
    {{- $of := $context.capabilities | default dict -}}
    {{- $added := concat ($of.add | default list) . | uniq -}}
    {{- $_ := set $context "capabilities" (merge (dict "add" $added) $of) -}}
  {{- end -}}
  {{- $_ := set $group "securityContext" $context -}}
  {{- $_ := set $group "objectName" (printf "%s-%s" $facts.fullname $group.name) -}}
  {{- $_ := set $group "grace" (int $effective.terminationGracePeriodSeconds) -}}
  {{- $_ := set $group "maximum" (add $group.number $effective.spares | int) -}}
  {{- $groups = append $groups $group -}}
  {{- $ranks = add $ranks (mul $group.number $group.slots) -}}
  {{- $workers = add $workers $group.number -}}
  {{- $spares = add $spares $effective.spares -}}
  {{- /* An eviction does not prefer spares, so that a group without a minimum needs all of its pods. */ -}}
  {{- $fewest = add $fewest ($group.minimum | default $group.maximum) -}}
{{- end -}}
{{- $_ := set $facts "groups" $groups -}}
{{- $_ := set $facts "ranks" $ranks -}}
{{- $_ := set $facts "workers" $workers -}}
{{- $_ := set $facts "spares" $spares -}}
{{- $_ := set $facts "fewestWorkers" $fewest -}}
{{- end }}

{{/*
Merges a group's own values into a copy of the worker's, which it changes. A map merges key by key, and null,
{} or [] clears the worker's value. Entries of env, volumes and volumeMounts are added to those that are
there.
Call with (dict "into" $copyOfTheWorker "from" $valuesOfTheGroup).
*/}}
{{- define "horovod.mergeGroup" -}}
{{- $into := .into -}}
{{- $own := deepCopy .from -}}
{{- range $list := list "env" "volumes" "volumeMounts" -}}
  {{- with get $own $list -}}{{- $_ := set $own $list (concat (get $into $list) .) -}}{{- end -}}
{{- end -}}
{{- with $own.image -}}
  {{- $_ := set $into "image"
    (include "horovod.mergedImage" (dict "image" $into.image "own" .) | fromJson) -}}
{{- end -}}
{{- include "horovod.mergeInto" (dict "into" $into "from" $own) -}}
{{- end }}

{{/*
How the chart tunes Horovod in the workers.
  ranksChooseFusion   whether the ranks choose the size of Horovod's fusion buffer
  groups[].tuning  the values of `horovod` as variables, without those that the group's env sets
*/}}
{{- define "horovod.prepareTuning" -}}
{{- /* Ranks may choose a size where all of them choose the same one. Known here is what a rank cannot see:
whether all groups run over MPI and on CPUs, and have the same variables from env, a Secret and the image. A
rank sees its environment, and decides the size (hvd_pods/rank/fusion.py). */ -}}
{{- $sources := list -}}
{{- $hasDevices := false -}}
{{- range .facts.groups -}}
  {{- $own := include "horovod.envEntry" (dict "env" .env "name" "HOROVOD_FUSION_THRESHOLD") | fromJson -}}
  {{- $sources = append $sources (list (empty $own) .envFrom .image | toJson) -}}
  {{- $hasDevices = or $hasDevices .podSpec.resourceClaims .podSpec.runtimeClassName -}}
  {{- range $resource, $count := (.resources).limits -}}
    {{- $hasDevices = or $hasDevices (and (contains "/" $resource) (int $count)) -}}
  {{- end -}}
{{- end -}}
{{- $areAlike := eq (len (uniq $sources)) 1 -}}
{{- $isMpi := eq .facts.values.launch.mode "mpirun" -}}
{{- $_ := set .facts "ranksChooseFusion" (and $isMpi (not $hasDevices) $areAlike) -}}
{{- $horovod := .facts.values.horovod -}}
{{- range $group := .facts.groups -}}
  {{- $variables := dict -}}
  {{- /* Kubernetes expands $(OUTPUT_PATH), because it comes earlier in the list. */ -}}
  {{- if $horovod.timeline -}}
    {{- $_ := set $variables "HOROVOD_TIMELINE" "$(OUTPUT_PATH)/horovod-timeline.json" -}}
  {{- end -}}
  {{- if $horovod.autotune -}}
    {{- $_ := set $variables "HOROVOD_AUTOTUNE" "1" -}}
    {{- if include "horovod.envEntry" (dict "env" .env "name" "OUTPUT_PATH") | fromJson -}}
      {{- $_ := set $variables "HOROVOD_AUTOTUNE_LOG" "$(OUTPUT_PATH)/horovod-autotune.csv" -}}
    {{- end -}}
  {{- end -}}
  {{- /* 0 is a valid threshold: it disables fusion. */ -}}
  {{- if not (kindIs "invalid" $horovod.fusionThresholdMiB) -}}
    {{- $bytes := mul $horovod.fusionThresholdMiB 1048576 -}}
    {{- $_ := set $variables "HOROVOD_FUSION_THRESHOLD" (toString $bytes) -}}
  {{- end -}}
  {{- with $horovod.cycleTimeMs -}}{{- $_ := set $variables "HOROVOD_CYCLE_TIME" (toString .) -}}{{- end -}}
  {{- $added := list -}}
  {{- range $name, $value := $variables -}}
    {{- if not (include "horovod.envEntry" (dict "env" $group.env "name" $name) | fromJson) -}}
      {{- $added = append $added (dict "name" $name "value" $value) -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $group "tuning" $added -}}
{{- end -}}
{{- end }}

{{/*
The gang: all pods of the run, which start together or not at all.
  gangSize        the pods of the gang: the master and all workers. The run needs each; spares count, or a
                  scheduler could leave out the master
  gangApi         the API of its PodGroup; empty where the cluster has none of Kubernetes' own
  gangSpec        the specification of the PodGroup
  podGroup        the name of the PodGroup
  schedulerName   the scheduler of the pods; empty for the cluster's default
*/}}
{{- define "horovod.prepareGang" -}}
{{- $gang := .facts.values.gang -}}
{{- $size := add 1 .facts.workers .facts.spares -}}
{{- $api := ternary "scheduling.volcano.sh/v1beta1" "" (eq $gang "Volcano") -}}
{{- $spec := dict -}}
{{- $name := .facts.fullname -}}
{{- if eq $gang "Volcano" -}}
  {{- $_ := set $spec "minMember" $size -}}
  {{- with .facts.values.queueName -}}{{- $_ := set $spec "queue" . -}}{{- end -}}
{{- else if eq $gang "Kubernetes" -}}
  {{- if .Capabilities.APIVersions.Has "scheduling.k8s.io/v1beta1/PodGroup" -}}
    {{- $api = "scheduling.k8s.io/v1beta1" -}}
  {{- end -}}
  {{- $_ := set $spec "schedulingPolicy" (dict "gang" (dict "minCount" $size)) -}}
  {{- with .facts.values.gangTopologyKey -}}
    {{- $_ := set $spec "schedulingConstraints" (dict "topology" (list (dict "key" .))) -}}
  {{- end -}}
  {{- /* A run without its last worker only holds its nodes, unless a spare or a minimum lets it go on. */ -}}
  {{- $goesOn := gt (int .facts.spares) 0 -}}
  {{- range .facts.groups -}}{{- $goesOn = or $goesOn (gt (int .minimum) 0) -}}{{- end -}}
  {{- $_ := set $spec "disruptionMode" (dict (ternary "single" "all" $goesOn) dict) -}}
{{- end -}}
{{- with .facts.values.priorityClassName -}}{{- $_ := set $spec "priorityClassName" . -}}{{- end -}}
{{- if eq $gang "Kubernetes" -}}
  {{- /* Kubernetes lets nobody change the specification of a PodGroup: another one is another object. */ -}}
  {{- $name = printf "%s-%s" $name (toJson $spec | sha256sum | trunc 8) -}}
{{- end -}}
{{- $own := ternary "volcano" "" (eq $gang "Volcano") -}}
{{- $_ := set .facts "gangSize" $size -}}
{{- $_ := set .facts "gangApi" $api -}}
{{- $_ := set .facts "gangSpec" $spec -}}
{{- $_ := set .facts "podGroup" $name -}}
{{- $_ := set .facts "schedulerName" (.facts.values.schedulerName | default $own) -}}
{{- end }}
