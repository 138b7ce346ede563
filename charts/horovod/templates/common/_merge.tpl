{{/* Merging values: defaults, worker groups, labels. */}}

{{/*
Sets the keys that are missing or null: null deletes a key, and after `helm upgrade --reuse-values` the keys
of a newer chart are missing.
Call with (dict "into" $values "defaults" $defaults).
*/}}
{{- define "horovod.addDefaults" -}}
{{- $into := .into -}}
{{- range $key, $default := .defaults -}}
  {{- $value := index $into $key -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := set $into $key (deepCopy $default) -}}
  {{- else if kindIs "map" $default -}}
    {{- include "horovod.addDefaults" (dict "into" $value "defaults" $default) -}}
  {{- end -}}
{{- end -}}
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

{{/*
The maps of a list merged into one, as YAML: a later one overrides those before it, also with empty values.
*/}}
{{- define "horovod.layered" -}}
{{- $all := dict -}}
{{- range . -}}{{- include "horovod.override" (dict "into" $all "from" .) -}}{{- end -}}
{{ toYaml $all }}
{{- end }}
