{{/* Refusals of names: those of the objects, and those that the chart uses itself. */}}
{{- define "horovod.checkNames" -}}
{{- $fullname := .facts.fullname -}}
{{- $from := "from the release's name and the chart's alias" -}}
{{- if eq $fullname .Release.Name -}}{{- $from = "the release's name" -}}{{- end -}}
{{- if .facts.values.nameOverride -}}{{- $from = "from the release's name and nameOverride" -}}{{- end -}}
{{- /* The schema has checked fullnameOverride. */ -}}
{{- if not (regexMatch (printf "^(%s)$" .facts.shared.hostLabel) $fullname) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "the name of the objects is %q (%s)" $fullname $from)
    "why" "it becomes part of host names"
    "do" "use lower-case letters, digits and '-', and start with a letter") -}}
{{- end -}}
{{- $longest := .facts.shared.releaseName | int -}}
{{- if gt (len $fullname) $longest -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "the name of the objects, %q (%s), has %d characters" $fullname $from (len $fullname))
    "why" "the name of the master's Job must not exceed 63"
    "do" (printf "use at most %d, or replace the name with fullnameOverride" $longest)) -}}
{{- end -}}
{{- /* Names of variables, volumes and paths that the chart uses itself. */ -}}
{{- $reserved := .facts.shared.reserved -}}
{{- $environments := dict "master.env" .facts.values.master.env "staging.env" .facts.values.staging.env -}}
{{- $_ := set $environments "results.env" .facts.values.results.env -}}
{{- $volumes := dict "volumes" .facts.values.volumes -}}
{{- $mounts := dict "volumeMounts" .facts.values.volumeMounts -}}
{{- range .facts.groups -}}
  {{- $_ := set $environments (printf "worker.env (group %q)" .name) .env -}}
  {{- $_ := set $volumes (printf "volumes of group %q" .name) .volumes -}}
  {{- $_ := set $mounts (printf "volumeMounts of group %q" .name) .volumeMounts -}}
{{- end -}}
{{- range $of, $entries := $environments -}}
  {{- range $entries -}}
    {{- $isReserved := regexMatch (printf "^(%s)$" $reserved.variables) .name -}}
    {{- if and $isReserved (not (has .name $reserved.userVariables)) -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has %s" $of .name)
        "why" "the chart sets that variable"
        "do" "give yours another name") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $of, $entries := $volumes -}}
  {{- range $entries -}}
    {{- if has .name $reserved.volumes -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has one named %q" $of .name)
        "why" "the chart has a volume of that name"
        "do" "rename yours") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $of, $entries := $mounts -}}
  {{- range $entries -}}
    {{- if regexMatch (printf "^(%s)$" $reserved.mountPaths) .mountPath -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has the mountPath %s" $of .mountPath)
        "why" "the chart's own files are there"
        "do" "choose another path") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
