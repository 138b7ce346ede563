{{/* Environment variables of containers. */}}

{{/* Of the pods' user, whose UID may have no entry in the image's /etc/passwd. */}}
{{- define "horovod.userVariables" -}}
{{- /* The image's home directory is not writable, because the root file system is read-only. */ -}}
- {name: HOME, value: /tmp}
- {name: USER, value: horovod}
- {name: LOGNAME, value: horovod}
{{- end }}

{{/* The entry of the framework for the master and the workers; empty for Horovod. */}}
{{- define "horovod.frameworkVariable" -}}
{{- $framework := .Values.launch.framework -}}
{{- if ne $framework "horovod" -}}{name: HVD_FRAMEWORK, value: {{ quote $framework }}}{{- end -}}
{{- end }}

{{/*
The entries with each name once, as YAML: server-side apply refuses a list that has a name twice. The last
entry of a name wins, in the place of the first, because entries between them may refer to it as $(NAME). It
must not refer to an entry that is between them, or to an earlier one of its own name: Kubernetes would not
expand the reference there. That is refused here and not in checks/, which run before some of the chart's own
variables are known.
Call with (dict "entries" $list "of" "worker.env of group \"gpu\""); `of` is for messages.
*/}}
{{- define "horovod.env" -}}
{{- $of := .of -}}
{{- $places := dict -}}
{{- $unique := list -}}
{{- range .entries -}}
  {{- $entry := . -}}
  {{- if not (hasKey $places .name) -}}
    {{- $_ := set $places .name (len $unique) -}}
    {{- $unique = append $unique . -}}
  {{- else -}}
    {{- $place := get $places .name -}}
    {{- range $name, $other := $places -}}
      {{- /* $$ is an escaped dollar sign. */ -}}
      {{- if and (ge $other $place)
        (contains (printf "$(%s)" $name) ($entry.value | default "" | replace "$$" "")) -}}
        {{- $problem := printf "%s: %s is %q, which refers to %s" $of $entry.name $entry.value $name -}}
        {{- fail
          (printf "%s; %s is given more than once: write the value of %s out" $problem $entry.name $name) -}}
      {{- end -}}
    {{- end -}}
    {{- $unique = concat (slice $unique 0 $place) (list .) (slice $unique (add1 $place)) -}}
  {{- end -}}
{{- end -}}
{{ toYaml $unique }}
{{- end }}

{{/* Not empty when the list has the variable, with value or valueFrom. */}}
{{- define "horovod.hasEnv" -}}
{{- $name := .name -}}
{{- range .env -}}{{- if eq .name $name -}}yes{{- end -}}{{- end -}}
{{- end }}
