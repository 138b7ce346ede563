{{/* Environment variables of containers. */}}

{{/* Of the pods' user, whose UID may have no entry in the image's /etc/passwd. */}}
{{- define "horovod.userVariables" -}}
# The image's home directory is not writable, because the root file system is read-only.
- {name: HOME, value: /tmp}
- {name: USER, value: horovod}
- {name: LOGNAME, value: horovod}
{{- end }}

{{/*
The entries with each name once, as YAML: server-side apply refuses a list that has a name twice. The last entry of a
name wins. It takes the place of the first, because later entries may refer to it as $(NAME), and entries that it refers
to are moved before it.
Call with (dict "entries" $list "of" "worker.env of group \"gpu\""); `of` is for messages.
*/}}
{{- define "horovod.env" -}}
{{- $names := dict -}}
{{- range .entries -}}{{- $_ := set $names .name true -}}{{- end -}}
{{- if eq (len $names) (len .entries) -}}
{{ toYaml .entries }}
{{- else -}}
{{- $merge := dict "of" .of "winners" dict "references" dict "names" list "visited" dict "result" list -}}
{{- range .entries -}}{{- include "horovod.addVariable" (dict "merge" $merge "entry" .) -}}{{- end -}}
{{- range $merge.names -}}{{- include "horovod.placeVariable" (dict "merge" $merge "name" .) -}}{{- end -}}
{{ toYaml $merge.result }}
{{- end -}}
{{- end }}

{{/* Records an entry, and the earlier variables that it refers to. */}}
{{- define "horovod.addVariable" -}}
{{- $merge := .merge -}}
{{- $entry := .entry -}}
{{- $name := $entry.name -}}
{{- $references := list -}}
{{- range regexFindAll "\\$\\$|\\$\\([^)]*\\)" ($entry.value | default "") -1 -}}
{{- $other := trimSuffix ")" (trimPrefix "$(" .) -}}
{{- if and (ne . "$$") (hasKey $merge.winners $other) -}}{{- $references = append $references $other -}}{{- end -}}
{{- end -}}
{{- if has $name $references -}}
{{- $earlier := get $merge.winners $name -}}
{{- if $earlier.valueFrom -}}
{{- $problem := printf "%s: %s is %q, but the entry that it refers to has valueFrom" $merge.of $name $entry.value -}}
{{- fail (printf "%s: give one of the two entries another name" $problem) -}}
{{- end -}}
{{- $own := splitList "$$" $entry.value -}}
{{- $expanded := list -}}
{{- range $own -}}
{{- $expanded = append $expanded (replace (printf "$(%s)" $name) ($earlier.value | default "") .) -}}
{{- end -}}
{{- $entry = dict "name" $name "value" (join "$$" $expanded) -}}
{{- $references = concat (without $references $name) (get $merge.references $name) -}}
{{- end -}}
{{- if not (hasKey $merge.winners $name) -}}{{- $_ := set $merge "names" (append $merge.names $name) -}}{{- end -}}
{{- $_ := set $merge.winners $name $entry -}}
{{- $_ := set $merge.references $name $references -}}
{{- end }}

{{/* Adds the variables that this one refers to, and then the variable itself, to the result. */}}
{{- define "horovod.placeVariable" -}}
{{- $merge := .merge -}}
{{- $name := .name -}}
{{- $state := get $merge.visited $name -}}
{{- if eq $state "started" -}}
{{- fail (printf "%s: %s refers to itself through other variables: give one of them another name" $merge.of $name) -}}
{{- else if not $state -}}
{{- $_ := set $merge.visited $name "started" -}}
{{- range get $merge.references $name -}}
{{- include "horovod.placeVariable" (dict "merge" $merge "name" .) -}}
{{- end -}}
{{- $_ := set $merge.visited $name "done" -}}
{{- $_ := set $merge "result" (append $merge.result (get $merge.winners $name)) -}}
{{- end -}}
{{- end }}

{{/*
The value of a variable in a list of env entries; empty when it is missing or has valueFrom.
Call with (dict "env" $list "name" "OUTPUT_PATH").
*/}}
{{- define "horovod.envValue" -}}
{{- $name := .name -}}
{{- $value := "" -}}
{{- range .env -}}{{- if eq .name $name -}}{{- $value = .value | default "" -}}{{- end -}}{{- end -}}
{{ $value }}
{{- end }}

{{/* Where the ranks write, unless a value says otherwise. */}}
{{- define "horovod.outputPath" -}}
{{ include "horovod.envValue" (dict "env" .Values.worker.env "name" "OUTPUT_PATH") }}
{{- end }}

{{/* Not empty when the list has the variable, with value or valueFrom. */}}
{{- define "horovod.hasEnv" -}}
{{- $name := .name -}}
{{- range .env -}}{{- if eq .name $name -}}yes{{- end -}}{{- end -}}
{{- end }}
