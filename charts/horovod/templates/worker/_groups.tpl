{{/* The worker groups, each merged with `worker`. */}}

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
{{- range (.Values.workerGroups | default (list (dict "name" "worker"))) -}}
  {{- $group := deepCopy $.Values.worker -}}
  {{- include "horovod.mergeGroup" (dict "root" $ "group" $group "own" .) -}}
  {{- include "horovod.addDefaults" (dict "into" $group "defaults" $defaults) -}}
  {{- /* spares: 0 means the same as no spares, so that the hash of the settings leaves out both. */ -}}
  {{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
  {{- $effective := pick $group "spares" "terminationGracePeriodSeconds" -}}
  {{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
  {{- $_ := set $group "maximum" (add $group.number $effective.spares | int) -}}
  {{- $_ := set $group "objectName" (printf "%s-%s" $facts.fullname $group.name) -}}
  {{- $_ := set $group "grace" (int $effective.terminationGracePeriodSeconds) -}}
  {{- $groups = append $groups $group -}}
  {{- $ranks = add $ranks (mul $group.number $group.slots) -}}
  {{- $workers = add $workers $group.number -}}
  {{- /* An eviction does not prefer spares, so that a group without a minimum needs all of its pods. */ -}}
  {{- $fewest = add $fewest ($group.minimum | default $group.maximum) -}}
  {{- $spares = add $spares $effective.spares -}}
{{- end -}}
{{- $_ := set $facts "groups" $groups -}}
{{- $_ := set $facts "ranks" $ranks -}}
{{- $_ := set $facts "workers" $workers -}}
{{- $_ := set $facts "spares" $spares -}}
{{- $_ := set $facts "fewestWorkers" $fewest -}}
{{- end }}

{{/*
Merges a group's own values into a copy of the worker's, which it changes. A map merges key by key, and null,
{} or [] clears the worker's value. Entries of env, volumes and volumeMounts are added to the worker's and the
release's.
Call with (dict "root" $ "group" $copyOfTheWorker "own" $valuesOfTheGroup).
*/}}
{{- define "horovod.mergeGroup" -}}
{{- $values := .root.Values -}}
{{- $group := .group -}}
{{- $own := deepCopy .own -}}
{{- $_ := set $group "volumes" $values.volumes -}}
{{- $_ := set $group "volumeMounts" $values.volumeMounts -}}
{{- range $list := list "env" "volumes" "volumeMounts" -}}
  {{- with get $own $list -}}{{- $_ := set $own $list (concat (get $group $list) .) -}}{{- end -}}
{{- end -}}
{{- with $own.image -}}
  {{- $_ := set $group "image"
    (include "horovod.mergedImage" (dict "image" $group.image "own" .) | fromJson) -}}
{{- end -}}
{{- include "horovod.override" (dict "into" $group "from" $own) -}}
{{- end }}

{{/*
The entry of a group's env that asks for the rank before each line, as JSON; empty where it has none.
*/}}
{{- define "horovod.tagEntry" -}}
{{- $entry := "" -}}
{{- range .env -}}{{- if eq .name "HVD_TAG_OUTPUT" -}}{{- $entry = toJson . -}}{{- end -}}{{- end -}}
{{- $entry -}}
{{- end }}

{{/*
How many workers the StatefulSet of a group has. They keep the number that they were scaled to; 0 is that of a
suspended run. Nobody ends the workers of a run that has ended, so that an upgrade adds none, even where it
changes the StatefulSet or finds none.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.replicas" -}}
{{- $facts := .root.facts -}}
{{- $name := .group.objectName -}}
{{- if or .root.Values.master.suspend $facts.workersAreDone -}}
0
{{- else if $facts.outcome -}}
{{ dig "spec" "replicas" 0 (get $facts.statefulSets $name | default dict) | int }}
{{- else -}}
{{- $kept := get $facts.sets $name | default dict -}}
{{ dig "spec" "replicas" 0 $kept | default .group.maximum | int }}
{{- end -}}
{{- end }}
