{{/* Refusals of names: those of the objects and of the worker groups. */}}

{{- define "horovod.checkObjectNames" -}}
{{- $fullname := .facts.fullname -}}
{{- $origin := "from the release's name and the chart's alias" -}}
{{- if eq $fullname .Release.Name -}}{{- $origin = "the release's name" -}}{{- end -}}
{{- if .facts.values.nameOverride -}}{{- $origin = "from the release's name and nameOverride" -}}{{- end -}}
{{- /* The schema has checked fullnameOverride. */ -}}
{{- if not (regexMatch (printf "^(%s)$" .facts.shared.hostLabel) $fullname) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "the name of the objects is %q (%s)" $fullname $origin)
    "why" "it becomes part of host names"
    "do" "use lower-case letters, digits and '-', and start with a letter") -}}
{{- end -}}
{{- $longest := .facts.shared.releaseName | int -}}
{{- if gt (len $fullname) $longest -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "the name of the objects, %q (%s), has %d characters" $fullname $origin (len $fullname))
    "why" "the name of the master's Job must not exceed 63"
    "do" (printf "use at most %d, or replace the name with fullnameOverride" $longest)) -}}
{{- end -}}
{{- end }}

{{/* The names of groups are part of the names of objects. */}}
{{- define "horovod.checkGroupNames" -}}
{{- $names := list -}}
{{- $longest := ternary "alone" "inQueue" (empty .facts.kueue) | get .facts.shared.statefulSetName | int -}}
{{- range .facts.groups -}}
  {{- if gt (len .objectName) $longest -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "StatefulSet name %q has %d characters" .objectName (len .objectName))
      "why" "a label of its pods adds hashes to it and must not exceed 63"
      "do" (printf "use at most %d, and shorten the release's name or workerGroups[].name" $longest)) -}}
  {{- end -}}
  {{- if has .name $names -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "workerGroups has two groups named %q" .name)
      "do" "give each group another name") -}}
  {{- end -}}
  {{- if eq .name "master" -}}
    {{- include "horovod.refuse" (dict
      "what" "workerGroups[].name is \"master\""
      "why" "that name is reserved for the master") -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- end }}
