{{/* Refusals of keys and values of older charts, which values.source.yaml lists. */}}

{{- define "horovod.checkRetired" -}}
{{- $values := .Values -}}
{{- range $key, $instead := include "horovod.retired" . | fromJson -}}
  {{- $pair := splitList "=" $key -}}
  {{- $parts := splitList "." (first $pair) -}}
  {{- $parent := $values -}}
  {{- range initial $parts -}}{{- $parent = get $parent . | default dict -}}{{- end -}}
  {{- if eq (len $pair) 2 -}}
    {{- if eq (get $parent (last $parts) | toString) (last $pair) -}}
      {{- fail (printf "%s is a value of older charts; use instead: %s" $key $instead) -}}
    {{- end -}}
  {{- else if hasKey $parent (last $parts) -}}
    {{- fail (printf "%s is a key of older charts; use instead: %s" $key $instead) -}}
  {{- end -}}
{{- end -}}
{{- end }}
