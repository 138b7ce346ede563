{{/* The worker groups, each merged with `worker`. */}}

{{/*
The argument has:
  root      the context of the chart
  defaults  the defaults of the chart
  numbers   the numbers in the place of nulls
*/}}
{{- define "horovod.prepareGroups" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $facts := .root.facts -}}
{{- $defaults := merge (dict "volumes" list "volumeMounts" list) .defaults.worker -}}
{{- $numbers := .numbers.worker -}}
{{- $groups := list -}}
{{- $ranks := 0 -}}
{{- $workers := 0 -}}
{{- $spares := 0 -}}
{{- range ($values.workerGroups | default (list (dict "name" "worker"))) -}}
  {{- $group := deepCopy $values.worker -}}
  {{- include "horovod.mergeGroup" (dict "root" $root "group" $group "own" .) -}}
  {{- include "horovod.addDefaults" (dict "into" $group "defaults" $defaults) -}}
  {{- /* spares: 0 means the same as no spares, so that the hash of the settings leaves out both. */ -}}
  {{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
  {{- $effective := deepCopy $group -}}
  {{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
  {{- $_ := set $group "maximum" (add $group.number $effective.spares | int) -}}
  {{- $_ := set $group "objectName" (printf "%s-%s" $facts.fullname $group.name) -}}
  {{- $_ := set $group "grace" (int $effective.terminationGracePeriodSeconds) -}}
  {{- $groups = append $groups $group -}}
  {{- $ranks = add $ranks (mul $group.number $group.slots) -}}
  {{- $workers = add $workers $group.number -}}
  {{- $spares = add $spares $effective.spares -}}
{{- end -}}
{{- $_ := set $facts "groups" $groups -}}
{{- $_ := set $facts "ranks" $ranks -}}
{{- $_ := set $facts "workers" $workers -}}
{{- $_ := set $facts "spares" $spares -}}
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
{{- else if $facts.end -}}
{{ dig "spec" "replicas" 0 (get $facts.statefulSets $name | default dict) | int }}
{{- else -}}
{{- $kept := get $facts.sets $name | default dict -}}
{{ dig "spec" "replicas" 0 $kept | default .group.maximum | int }}
{{- end -}}
{{- end }}
