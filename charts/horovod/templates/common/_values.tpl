{{/* The values as all templates use them: complete, with each worker group merged, and computed once. */}}

{{/*
Every template file includes this first. Helm renders all files of a chart with the same root, so the first call does
the work and keeps the result there:
  .horovod.groups  the worker groups. A group has every key of `worker`, and: name, volumes, volumeMounts, statefulSet
                   (its name), maximum (the most hosts that it may have: with spares, or elastic), pod (its pod spec),
                   revision, and staged (the record of the nodes that have its data).
It also keeps the result of horovod.findRun.
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "horovod") -}}
{{- $root := . -}}
{{- $_ := set . "horovod" (dict "groups" list) -}}
{{- $defaults := include "horovod.defaults" . | fromJson -}}
{{- include "horovod.restoreDefaults" (dict "into" .Values "defaults" $defaults) -}}
{{- $ofGroups := dict "worker.volumes" list "worker.volumeMounts" list -}}
{{- range $path, $default := $defaults -}}
{{- if hasPrefix "worker." $path -}}{{- $_ := set $ofGroups $path $default -}}{{- end -}}
{{- end -}}
{{- range (.Values.workerGroups | default (list (dict "name" "worker"))) -}}
{{- $group := deepCopy $root.Values.worker -}}
{{- include "horovod.mergeGroup" (dict "root" $root "group" $group "own" .) -}}
{{- include "horovod.restoreDefaults" (dict "into" (dict "worker" $group) "defaults" $ofGroups) -}}
{{- include "horovod.nameGroup" (dict "root" $root "group" $group) -}}
{{- $_ := set $root.horovod "groups" (append $root.horovod.groups $group) -}}
{{- end -}}
{{- include "horovod.checks" . -}}
{{- include "horovod.findRun" . -}}
{{- range prepend .horovod.groups .Values.master -}}
{{- include "horovod.addMetadata" (dict "root" $root "of" .) -}}
{{- include "horovod.addToQueue" (dict "root" $root "of" .) -}}
{{- end -}}
{{- range .horovod.groups -}}
{{- /* A master in a queue cannot replace the pods of the run before, so that each run has StatefulSets of its own. */ -}}
{{- if include "horovod.kueue" $root -}}
{{- $_ := set . "statefulSet" (printf "%s-%s" .statefulSet (trunc 8 $root.horovod.settings)) -}}
{{- end -}}
{{- include "horovod.placeGroup" (dict "root" $root "group" .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Renders a template of the root once, however often its text is used. Call with (dict "root" $ "name" TEMPLATE).
*/}}
{{- define "horovod.once" -}}
{{- if not (hasKey .root.horovod .name) -}}{{- $_ := set .root.horovod .name (include .name .root) -}}{{- end -}}
{{ get .root.horovod .name }}
{{- end }}

{{/*
Sets missing keys: null deletes a key, and after `helm upgrade --reuse-values` the keys of a newer chart are missing.
`defaults` has the path of each key, such as master.args. Call with (dict "into" $values "defaults" $defaults).
*/}}
{{- define "horovod.restoreDefaults" -}}
{{- $values := .into -}}
{{- range $path, $default := .defaults -}}
{{- $parent := $values -}}
{{- $steps := splitList "." $path -}}
{{- range initial $steps -}}
{{- if not (get $parent .) -}}{{- $_ := set $parent . dict -}}{{- end -}}
{{- $parent = get $parent . -}}
{{- end -}}
{{- $name := last $steps -}}
{{- if kindIs "invalid" (index $parent $name) -}}{{- $_ := set $parent $name (deepCopy $default) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
Merges a group's own values into a copy of the worker's, which it changes. A map merges key by key, and null, {} or []
clears the worker's value. Entries of env, volumes and volumeMounts are added to the worker's and the release's.
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
{{- $_ := set $group "image" (include "horovod.mergedImage" (dict "image" $group.image "own" .) | fromJson) -}}
{{- end -}}
{{- include "horovod.override" (dict "into" $group "from" $own) -}}
{{- end }}

{{/* Changes `into`: maps merge key by key, null removes a key, anything else replaces. */}}
{{- define "horovod.override" -}}
{{- $into := .into -}}
{{- range $key, $value := .from -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $into $key -}}
{{- else if and (kindIs "map" $value) $value -}}
{{- if not (kindIs "map" (get $into $key)) -}}{{- $_ := set $into $key dict -}}{{- end -}}
{{- include "horovod.override" (dict "into" (get $into $key) "from" $value) -}}
{{- else -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The maps of a list merged into one, as YAML: a later one overrides those before it, also with empty values. */}}
{{- define "horovod.layered" -}}
{{- $all := dict -}}
{{- range . -}}{{- include "horovod.override" (dict "into" $all "from" .) -}}{{- end -}}
{{ toYaml $all }}
{{- end }}

{{/* Adds to a group or the master the labels and annotations of all pods. Call with (dict "root" $ "of" $group). */}}
{{- define "horovod.addMetadata" -}}
{{- $of := .of -}}
{{- $values := .root.Values -}}
{{- $labels := include "horovod.podLabels" .root | fromYaml -}}
{{- $annotations := include "horovod.podAnnotations" .root | fromYaml -}}
{{- range $key, $ofChart := dict "podLabels" $labels "podAnnotations" $annotations -}}
{{- $all := list $ofChart (get $values $key) (get $of $key) | include "horovod.layered" | fromYaml -}}
{{- $_ := set $of $key $all -}}
{{- end -}}
{{- end }}

{{/* Adds to a group the name of its StatefulSet, and the most hosts that it may have: with spares, or elastic. */}}
{{- define "horovod.nameGroup" -}}
{{- $values := .root.Values -}}
{{- $group := .group -}}
{{- $_ := set $group "statefulSet" (printf "%s-%s" (include "horovod.fullname" .root) $group.name) -}}
{{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
{{- $most := add $group.number ($group.spares | default 0) -}}
{{- if eq $values.launch.mode "elastic" -}}
{{- $most = max $most (div (int ($values.launch.elastic.maxRanks | default 0)) (int $group.slots)) -}}
{{- end -}}
{{- $_ := set $group "maximum" (int $most) -}}
{{- end }}

{{/* Adds the release's settings to a group (spread, gang, mesh, Horovod), and renders its pod spec. */}}
{{- define "horovod.placeGroup" -}}
{{- $group := .group -}}
{{- if and (ne $group.spread "None") (not (hasKey $group.affinity "podAntiAffinity")) -}}
{{- $_ := set $group.affinity "podAntiAffinity" (include "horovod.spread" . | fromYaml) -}}
{{- end -}}
{{- $_ := set $group "env" (concat $group.env (include "horovod.switches" . | fromJsonArray)) -}}
{{- $_ := set $group "pod" (include "horovod.workerPodBody" .) -}}
{{- $_ := set $group "revision" (include "horovod.revision" .) -}}
{{- $_ := set $group "staged" (include "horovod.stagedRecord" .) -}}
{{- if $group.staged -}}{{- include "horovod.placeOnStaged" . -}}{{- end -}}
{{- end }}
