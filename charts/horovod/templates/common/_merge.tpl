{{/* Merging maps. */}}

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

{{/* Changes `into`: maps merge key by key, null removes a key, anything else replaces. */}}
{{- define "horovod.mergeInto" -}}
{{- $into := .into -}}
{{- range $key, $value := .from -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $into $key -}}
  {{- else if and (kindIs "map" $value) $value -}}
    {{- if not (kindIs "map" (get $into $key)) -}}{{- $_ := set $into $key dict -}}{{- end -}}
    {{- include "horovod.mergeInto" (dict "into" (get $into $key) "from" $value) -}}
  {{- else -}}
    {{- $_ := set $into $key $value -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
The maps of a list merged into one, as JSON: a later one overrides those before it, also with empty values,
and null removes a key.
*/}}
{{- define "horovod.layered" -}}
{{- $all := dict -}}
{{- range . -}}{{- include "horovod.mergeInto" (dict "into" $all "from" .) -}}{{- end -}}
{{- toJson $all -}}
{{- end }}
