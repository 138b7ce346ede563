{{/* Refusals of worker groups. */}}
{{- define "horovod.checkGroups" -}}
{{- include "horovod.checkGroupNames" . -}}
{{- include "horovod.checkRunSize" . -}}
{{- include "horovod.checkSparesAndMinimum" . -}}
{{- include "horovod.checkGpus" . -}}
{{- include "horovod.checkTags" . -}}
{{- end }}

{{/* Names of groups, which are part of the names of objects. */}}
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

{{/* The Role names every pod that the master may replace, so that the number of workers has a limit. */}}
{{- define "horovod.checkRunSize" -}}
{{- $most := .facts.shared.workers | int -}}
{{- $workers := add .facts.workers .facts.spares | int -}}
{{- if gt $workers $most -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "number and spares of worker and workerGroups make up to %d workers" $workers)
    "why" (printf "the chart supports at most %d" $most)
    "do" "lower one of them") -}}
{{- end -}}
{{- end }}

{{/* Spares that could never replace a worker, and a minimum that could never be used. */}}
{{- define "horovod.checkSparesAndMinimum" -}}
{{- range $group := .facts.groups -}}
  {{- if gt (int $group.minimum) (int $group.number) -}}
    {{- $minimum := int $group.minimum -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "group %q: minimum is %d but number is %d" $group.name $minimum (int $group.number))
      "do" "give at most the number of workers") -}}
  {{- end -}}
  {{- range $key := list "spares" "minimum" -}}
    {{- if get $group $key -}}
      {{- $setting := printf "group %q: %s is %d" $group.name $key (get $group $key | int) -}}
      {{- range $.facts.values.master.args -}}
        {{- with regexFind (printf "\\b%s-[0-9]+" $group.objectName) . -}}
          {{- include "horovod.refuse" (dict
            "what" (printf "%s but master.args names the worker %q" $setting .)
            "why" "the run may do without this worker"
            "do" "take the workers from the file $(HOSTFILE), or from the launcher's line $(LAUNCH)") -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Slots and variables that contradict the GPUs of a worker. */}}
{{- define "horovod.checkGpus" -}}
{{- $known := .facts.shared -}}
{{- $pattern := printf "^(%s)$" $known.gpus -}}
{{- range .facts.groups -}}
  {{- $gpus := 0 -}}
  {{- $last := "" -}}
  {{- range $key, $count := (.resources).limits -}}
    {{- /* A limit of 0 is no GPU. */ -}}
    {{- if and (regexMatch $pattern $key) (int $count) -}}
      {{- $gpus = add $gpus (int $count) -}}
      {{- $last = $key -}}
    {{- end -}}
  {{- end -}}
  {{- $limit := printf "resources.limits[%q] is %d" $last (int $gpus) -}}
  {{- if and $last (ne (int $gpus) (int .slots)) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "group %q: slots is %d but %s" .name (int .slots) $limit)
      "why" "Horovod runs one rank per GPU"
      "do" "make them equal") -}}
  {{- end -}}
  {{- $group := .name -}}
  {{- $plugin := $known.devicePlugin -}}
  {{- if regexMatch (printf "^(%s)$" $plugin.resources) $last -}}
    {{- range .env -}}
      {{- if and (eq .name $plugin.variable) (not (has (get . "value") $plugin.values)) -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "group %q: env has %s but %s" $group $plugin.variable $limit)
          "why" "the device plugin sets it to the GPUs that a worker gets"
          "do" "remove it") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The master starts one mpirun for all groups, which names the rank of each line or of no line. */}}
{{- define "horovod.checkTags" -}}
{{- $first := first .facts.groups -}}
{{- $given := include "horovod.envEntry" (dict "env" $first.env "name" "HVD_TAG_OUTPUT") -}}
{{- range rest .facts.groups -}}
  {{- $own := include "horovod.envEntry" (dict "env" .env "name" "HVD_TAG_OUTPUT") -}}
  {{- if ne $own $given -}}
    {{- $ofFirst := ternary "not set" $given (fromJson $given | empty) -}}
    {{- $ofOwn := ternary "not set" $own (fromJson $own | empty) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf
        "HVD_TAG_OUTPUT in env is %s for group %q but %s for group %q" $ofFirst $first.name $ofOwn .name)
      "why" "either all lines of a run name their rank or none"
      "do" "set it in worker.env only") -}}
  {{- end -}}
{{- end -}}
{{- end }}
