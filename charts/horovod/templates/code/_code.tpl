{{/*
The files by name, as JSON. An unquoted `--set-file code.files.train\.py=train.py` loses its backslash in the shell, and
Helm then makes {train: {py: ...}} of it. Call with (dict "files" $map "prefix" "").
*/}}
{{- define "horovod.flattenFiles" -}}
{{- $prefix := .prefix -}}
{{- $files := dict -}}
{{- range $name, $content := .files -}}
{{- if kindIs "map" $content -}}
{{- $nested := include "horovod.flattenFiles" (dict "files" $content "prefix" (printf "%s%s." $prefix $name)) -}}
{{- $files = merge $files ($nested | fromJson) -}}
{{- else -}}
{{- $_ := set $files (printf "%s%s" $prefix $name) (toString $content) -}}
{{- end -}}
{{- end -}}
{{ toJson $files }}
{{- end }}
