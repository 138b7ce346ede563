{{/* What identifies the run of these values, and the names that follow from it. */}}

{{/*
Identifies the run of these values. ADR 10 has the rules.
  id              a hash of the values that identify the run
  settingsHash    a hash of all settings of the run
*/}}
{{- define "horovod.prepareRun" -}}
{{- $id := include "horovod.hashedValues" (dict "root" . "hash" "identity") | sha256sum | trunc 10 -}}
{{- $settings := include "horovod.hashedValues" (dict "root" . "hash" "settings") | sha256sum | trunc 10 -}}
{{- $_ := set .facts "id" $id -}}
{{- $_ := set .facts "settingsHash" $settings -}}
{{- end }}

{{/*
The values in a hash of the run, as JSON: identity has the values that decide what is trained, and settings
also has the values that decide how it starts. values.source.yaml declares the hash of each key; the merged
groups replace worker.
Call with (dict "root" $ "hash" "identity").
*/}}
{{- define "horovod.hashedValues" -}}
{{- $keys := get (include "horovod.hashes" . | fromJson) .hash -}}
{{- $groups := list -}}
{{- range .root.facts.groups -}}
  {{- $group := include "horovod.pickHashed" (dict "from" . "keys" $keys.workerGroups) | fromJson -}}
  {{- $groups = append $groups $group -}}
{{- end -}}
{{- $release := dict "from" .root.facts.values "keys" (omit $keys "workerGroups") -}}
{{- $hashed := include "horovod.pickHashed" $release | fromJson -}}
{{- $_ := set $hashed "workerGroups" $groups -}}
{{- toJson $hashed -}}
{{- end }}

{{/*
The values of some keys, as JSON, without those that are null or equal the content of the key in `keys`: a key
that a newer chart adds changes nothing. What the user writes below a key counts as it is, with what is empty
or false.
Call with (dict "from" $values "keys" $keys).
*/}}
{{- define "horovod.pickHashed" -}}
{{- $picked := dict -}}
{{- range $key, $unhashed := .keys -}}
  {{- $value := index $.from $key -}}
  {{- if and (kindIs "map" $unhashed) $unhashed -}}
    {{- $below := dict "from" ($value | default dict) "keys" $unhashed -}}
    {{- $value = include "horovod.pickHashed" $below | fromJson -}}
    {{- $unhashed = dict -}}
  {{- end -}}
  {{- if not (or (kindIs "invalid" $value) (eq (toJson $value) (toJson $unhashed))) -}}
    {{- $_ := set $picked $key $value -}}
  {{- end -}}
{{- end -}}
{{- toJson $picked -}}
{{- end }}

{{/*
  groups[].statefulSet  the name of the group's StatefulSet of this run
*/}}
{{- define "horovod.nameSets" -}}
{{- /* A master in a queue cannot replace the pods of the run before, so that each run has StatefulSets of its
own. */ -}}
{{- $suffix := ternary "" (printf "-%s" (trunc 8 .facts.settingsHash)) (empty .facts.kueue) -}}
{{- range $group := .facts.groups -}}
  {{- $_ := set $group "statefulSet" (printf "%s%s" .objectName $suffix) -}}
{{- end -}}
{{- end }}
