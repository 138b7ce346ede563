{{/*
The user's code: files of the release that the master hands to the workers (hvd_pods/master/user_code.py).
*/}}

{{- define "horovod.prepareCode" -}}
{{- $archive := .Values.code.archive -}}
{{- $text := include "horovod.flattenFiles" (dict "files" .Values.code.files "prefix" "") -}}
{{- $files := fromJson $text -}}
{{- $size := len $archive -}}
{{- range $files -}}{{- $size = add $size (len .) -}}{{- end -}}
{{- $code := dict "files" $files "size" (int $size) "version" "" "sha256" "" "configMap" "" "data" dict
  "binaryData" dict -}}
{{- $_ := set .facts "code" $code -}}
{{- if or .Values.code.files $archive -}}
  {{- $version := printf "%s %s" $text $archive | sha256sum | trunc 10 -}}
  {{- $_ := set $code "version" $version -}}
  {{- $_ := set $code "configMap" (printf "%s-code-%s" .facts.fullname $version) -}}
  {{- /* Of what `sha256sum` prints of the ConfigMap's keys: the master's pod has it in its template, and runs
  no other code (hvd_pods/pod/code_archive.py). */ -}}
  {{- $keys := deepCopy $files -}}
  {{- with $archive -}}{{- $_ := set $keys "archive.tgz" (nospace . | b64dec) -}}{{- end -}}
  {{- $lines := "" -}}
  {{- range keys $keys | sortAlpha -}}
    {{- $lines = printf "%s%s  %s\n" $lines (get $keys . | sha256sum) . -}}
  {{- end -}}
  {{- $_ := set $code "sha256" (sha256sum $lines) -}}
  {{- /* A text with characters that YAML cannot have, and that JSON does not escape, is binary data. */ -}}
  {{- range $name, $content := $files -}}
    {{- if regexMatch "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]" $content -}}
      {{- $_ := set $code.binaryData $name (b64enc $content) -}}
    {{- else -}}
      {{- $_ := set $code.data $name $content -}}
    {{- end -}}
  {{- end -}}
  {{- with $archive -}}{{- $_ := set $code.binaryData "archive.tgz" (nospace .) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
The files by name, as JSON. An unquoted `--set-file code.files.train\.py=train.py` loses its backslash in the
shell, and Helm then makes {train: {py: ...}} of it.
Call with (dict "files" $map "prefix" "").
*/}}
{{- define "horovod.flattenFiles" -}}
{{- $prefix := .prefix -}}
{{- $files := dict -}}
{{- range $name, $content := .files -}}
  {{- if kindIs "map" $content -}}
    {{- $nested := include "horovod.flattenFiles"
      (dict "files" $content "prefix" (printf "%s%s." $prefix $name)) -}}
    {{- $files = merge $files ($nested | fromJson) -}}
  {{- else -}}
    {{- $_ := set $files (printf "%s%s" $prefix $name) (toString $content) -}}
  {{- end -}}
{{- end -}}
{{ toJson $files }}
{{- end }}
