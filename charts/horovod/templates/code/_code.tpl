{{/* The user's code: files of the release that the master hands to the workers (hvd_pods/master/user_code.py). */}}

{{/* Not empty when the release has code. */}}
{{- define "horovod.hasCode" -}}
{{- if or .Values.code.files .Values.code.archive -}}yes{{- end -}}
{{- end }}

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

{{- define "horovod.codeFiles" -}}
{{ include "horovod.flattenFiles" (dict "files" .Values.code.files "prefix" "") }}
{{- end }}

{{/* The characters of all code, and how many of them a release may have. */}}
{{- define "horovod.codeSize" -}}
{{- $size := len .Values.code.archive -}}
{{- range include "horovod.once" (dict "root" . "name" "horovod.codeFiles") | fromJson -}}
{{- $size = add $size (len .) -}}
{{- end -}}
{{ $size }}
{{- end }}

{{- define "horovod.mostCode" -}}
{{ int (.Files.Get "files/hvd_pods/common/resources.json" | fromJson).codeCharacters }}
{{- end }}

{{/* The version of the code: a hash of its content. Empty without code. */}}
{{- define "horovod.codeVersion" -}}
{{- if include "horovod.hasCode" . -}}
{{- $files := include "horovod.once" (dict "root" . "name" "horovod.codeFiles") -}}
{{ printf "%s %s" $files .Values.code.archive | sha256sum | trunc 10 }}
{{- end -}}
{{- end }}

{{/*
The keys of the ConfigMap, as JSON. A text with characters that YAML cannot have, and that JSON does not escape, is
binary data.
*/}}
{{- define "horovod.codeKeys" -}}
{{- $data := dict -}}
{{- $binary := dict -}}
{{- range $name, $content := include "horovod.once" (dict "root" . "name" "horovod.codeFiles") | fromJson -}}
{{- if regexMatch "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]" $content -}}
{{- $_ := set $binary $name (b64enc $content) -}}
{{- else -}}
{{- $_ := set $data $name $content -}}
{{- end -}}
{{- end -}}
{{- with .Values.code.archive }}{{ $_ := set $binary "archive.tgz" (nospace .) }}{{ end -}}
{{ dict "data" $data "binaryData" $binary | toJson }}
{{- end }}

{{/*
The SHA256 of the code in the ConfigMap, of what `sha256sum` prints of its keys: the master's pod has it in its template,
and runs no other code (hvd_pods/common/code_archive.py). Empty without code.
*/}}
{{- define "horovod.codeSha256" -}}
{{- if include "horovod.hasCode" . -}}
{{- $files := include "horovod.once" (dict "root" . "name" "horovod.codeFiles") | fromJson -}}
{{- with .Values.code.archive }}{{ $_ := set $files "archive.tgz" (nospace . | b64dec) }}{{ end -}}
{{- $lines := "" -}}
{{- range keys $files | sortAlpha -}}
{{- $lines = printf "%s%s  %s\n" $lines (get $files . | sha256sum) . -}}
{{- end -}}
{{ sha256sum $lines }}
{{- end -}}
{{- end }}

{{- define "horovod.codeConfigMap" -}}
{{ include "horovod.fullname" . }}-code-{{ include "horovod.codeVersion" . }}
{{- end }}

{{/* The training command as a JSON list. A single Python file is the command itself. */}}
{{- define "horovod.command" -}}
{{- $files := keys (include "horovod.once" (dict "root" . "name" "horovod.codeFiles") | fromJson) -}}
{{- $isOneScript := and (eq (len $files) 1) (hasSuffix ".py" (first $files)) (not .Values.code.archive) -}}
{{- if and $isOneScript (not .Values.master.args) (ne .Values.launch.mode "custom") -}}
{{ list "python3" (first $files) | toJson }}
{{- else -}}
{{ toJson .Values.master.args }}
{{- end -}}
{{- end }}

{{/* Where a pod unpacks the code: on the volume of /tmp, because code may exceed the volume in memory. */}}
{{- define "horovod.codeMount" -}}
{{- if include "horovod.hasCode" . -}}
- {name: tmp, mountPath: /horovod/code, subPath: horovod-code}
{{- end -}}
{{- end }}
