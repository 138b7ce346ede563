{{/* Environment variables of containers. */}}

{{/*
Those of the pods' user: its UID may have no entry in the image's /etc/passwd. The image's home directory is
not writable, because the root file system is read-only.
*/}}
{{- define "horovod.userVariables" -}}
- {name: HOME, value: /tmp}
- {name: USER, value: horovod}
- {name: LOGNAME, value: horovod}
{{- end }}

{{/*
The entries with each name once, as YAML: server-side apply refuses a list that has a name twice. The last
entry of a name wins, in the place of the first, because entries between them may refer to it as $(NAME). An
entry that itself refers to one of these is refused: Kubernetes expands only references to entries before it.
Call with (dict "entries" $list "key" "workerGroups[gpu].env"); messages name the key.
*/}}
{{- define "horovod.env" -}}
{{- $key := .key -}}
{{- $entries := .entries -}}
{{- $places := dict -}}
{{- range $index, $entry := .entries -}}
  {{- if not (hasKey $places .name) -}}{{- $_ := set $places .name $index -}}{{- end -}}
  {{- /* $$ is an escaped dollar sign. */ -}}
  {{- $value := .value | default "" | replace "$$" "" -}}
  {{- range slice $entries (get $places .name) $index -}}
    {{- if contains (printf "$(%s)" .name) $value -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s sets %s to %q, which refers to %s" $key $entry.name $entry.value .name)
        "why" (printf "%s is given more than once" $entry.name)
        "do" (printf "write the value of %s out" .name)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{ include "horovod.uniqueItems" (dict "items" .entries "key" "name") }}
{{- end }}

{{/*
The entry of a variable as JSON; {} where the list has none. Of several, it is the last one.
Call with (dict "env" $list "name" "OUTPUT_PATH").
*/}}
{{- define "horovod.envEntry" -}}
{{- $name := .name -}}
{{- $entry := dict -}}
{{- range .env -}}{{- if eq .name $name -}}{{- $entry = . -}}{{- end -}}{{- end -}}
{{- toJson $entry -}}
{{- end }}
