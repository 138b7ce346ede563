{{/*
Refusals of names that the chart uses itself: of variables, volumes, paths, labels and containers. _fields.tpl
has the same of fields of pods.
*/}}

{{- define "horovod.checkReservedVariables" -}}
{{- $reserved := .facts.shared.reserved -}}
{{- $environments := dict "master.env" .facts.values.master.env -}}
{{- $_ := set $environments "staging.env" .facts.values.staging.env -}}
{{- range .facts.groups -}}
  {{- $_ := set $environments (printf "%s.env" .valuesKey) .env -}}
{{- end -}}
{{- range $key, $entries := $environments -}}
  {{- range $entries -}}
    {{- $isReserved := regexMatch (printf "^(%s)$" $reserved.variables) .name -}}
    {{- if and $isReserved (not (has .name $reserved.userVariables)) -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has %s" $key .name)
        "why" "the chart sets that variable"
        "do" "give yours another name") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkReservedVolumes" -}}
{{- $volumes := dict "volumes" .facts.values.volumes -}}
{{- range .facts.groups -}}
  {{- $_ := set $volumes (printf "%s.volumes" .valuesKey) .volumes -}}
{{- end -}}
{{- range $key, $entries := $volumes -}}
  {{- range $entries -}}
    {{- if has .name $.facts.shared.reserved.volumes -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has one named %q" $key .name)
        "why" "the chart has a volume of that name"
        "do" "rename yours, and mount it where you need it, also at /tmp or /dev/shm") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkReservedPaths" -}}
{{- $reserved := .facts.shared.reserved -}}
{{- $mounts := dict "volumeMounts" .facts.values.volumeMounts -}}
{{- range .facts.groups -}}
  {{- $_ := set $mounts (printf "%s.volumeMounts" .valuesKey) .volumeMounts -}}
{{- end -}}
{{- range $key, $entries := $mounts -}}
  {{- range $mount := $entries -}}
    {{- $path := include "horovod.cleanPath" .mountPath -}}
    {{- $owners := dict "chart" $reserved.mountPaths "system" $reserved.systemPaths -}}
    {{- range $owner, $pattern := $owners -}}
      {{- if regexMatch (printf "^(%s)$" $pattern) $path -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "%s has the mountPath %s" $key $mount.mountPath)
          "why" (printf "the %s's own files are there" $owner)
          "do" "choose another path") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "horovod.checkReservedLabels" -}}
{{- $reserved := printf "^(%s)$" .facts.shared.reserved.labels -}}
{{- range $label, $value := .facts.values.labels -}}
  {{- if regexMatch $reserved $label -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "labels has %s" $label)
      "why" "the chart sets that label"
      "do" "use another one") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Labels of pods by which the chart selects them. */}}
{{- define "horovod.checkSelectorLabels" -}}
{{- $reserved := printf "^(%s)$" .facts.shared.reserved.podLabels -}}
{{- $labels := dict "podLabels" .facts.values.podLabels -}}
{{- $_ := set $labels "master.podLabels" .facts.values.master.podLabels -}}
{{- range .facts.groups -}}
  {{- $_ := set $labels (printf "%s.podLabels" .valuesKey) .podLabels -}}
{{- end -}}
{{- range $key, $podLabels := $labels -}}
  {{- range $label, $value := $podLabels -}}
    {{- if regexMatch $reserved $label -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has %s" $key $label)
        "why" "the chart's selectors need that label"
        "do" "use another one") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Containers that the values add to the pods of the master and of each group. */}}
{{- define "horovod.checkContainerNames" -}}
{{- range $owner, $values := .facts.podValues -}}
  {{- $names := list -}}
  {{- range $key := list "initContainers" "extraContainers" -}}
    {{- range get $values $key | default list -}}
      {{- if has .name (list "master" "worker" "staging") -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "%s.%s has a container named %q" $owner $key .name)
          "why" "the chart has a container of that name"
          "do" "rename yours") -}}
      {{- end -}}
      {{- if has .name $names -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "%s.%s has another container named %q" $owner $key .name)
          "why" "the names of a pod's containers must differ"
          "do" "rename one of them") -}}
      {{- end -}}
      {{- $names = append $names .name -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
