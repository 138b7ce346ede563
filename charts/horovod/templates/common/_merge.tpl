{{/* Merging values: defaults, worker groups, labels. */}}

{{/*
Sets missing keys: null deletes a key, and after `helm upgrade --reuse-values` the keys of a newer chart are
missing. `defaults` has the path of each key, such as master.args.
Call with (dict "into" $values "defaults" $defaults).
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
  {{- if kindIs "invalid" (index $parent $name) -}}
    {{- $_ := set $parent $name (deepCopy $default) -}}
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
