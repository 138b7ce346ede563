{{/* Refusals of worker groups. */}}

{{- define "horovod.checkGroups" -}}
{{- $names := list -}}
{{- $longest := ternary "alone" "inQueue" (empty .facts.kueue) | get .facts.shared.statefulSetName | int -}}
{{- range .facts.groups -}}
  {{- if gt (len .objectName) $longest -}}
    {{- $subject := printf
      "StatefulSet name %q has %d characters: use at most %d" .objectName (len .objectName) $longest -}}
    {{- $reason := "because a label of its pods adds hashes to it and must not exceed 63" -}}
    {{- fail (printf "%s, %s; shorten the release's name or workerGroups[].name" $subject $reason) -}}
  {{- end -}}
  {{- if has .name $names -}}
    {{- fail (printf "workerGroups has two groups named %q: names must differ" .name) -}}
  {{- end -}}
  {{- if eq .name "master" -}}
    {{- fail "workerGroups[].name is \"master\": that name is reserved for the master" -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- include "horovod.checkWorkers" . -}}
{{- include "horovod.checkSpares" . -}}
{{- include "horovod.checkGpus" . -}}
{{- include "horovod.checkTags" . -}}
{{- end }}

{{/* The Role names every pod that the master may replace, so that the number of workers has a limit. */}}
{{- define "horovod.checkWorkers" -}}
{{- $most := .facts.shared.workers | int -}}
{{- $workers := add .facts.workers .facts.spares | int -}}
{{- if gt $workers $most -}}
  {{- $source := "number and spares of worker and workerGroups" -}}
  {{- $advice := printf "the chart supports at most %d; lower one of them" $most -}}
  {{- fail (printf "%s make up to %d workers: %s" $source $workers $advice) -}}
{{- end -}}
{{- end }}

{{/* Refuses spares that could never replace a worker, and a minimum that could never be used. */}}
{{- define "horovod.checkSpares" -}}
{{- $root := . -}}
{{- range $group := .facts.groups -}}
  {{- if gt (int $group.minimum) (int $group.number) -}}
    {{- $given := printf
      "group %q: minimum is %d but number is %d" $group.name (int $group.minimum) (int $group.number) -}}
    {{- fail (printf "%s: give at most the number of workers" $given) -}}
  {{- end -}}
  {{- range $key := list "spares" "minimum" -}}
    {{- if get $group $key -}}
      {{- $given := printf "group %q: %s is %d" $group.name $key (int (get $group $key)) -}}
      {{- range $root.Values.master.args -}}
        {{- with regexFind (printf "\\b%s-[0-9]+" $group.objectName) . -}}
          {{- $remedy :=
            "take the workers from the file $(HOSTFILE), or from the launcher's line $(LAUNCH)" -}}
          {{- fail (printf
            "%s but master.args names the worker %q, which the run may do without: %s" $given . $remedy) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

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
  {{- if and $last (ne (int $gpus) (int .slots)) -}}
    {{- $subject := printf
      "group %q: slots is %d but resources.limits[%q] is %d" .name (int .slots) $last (int $gpus) -}}
    {{- fail (printf "%s: Horovod runs one rank per GPU, so make them equal" $subject) -}}
  {{- end -}}
  {{- $group := .name -}}
  {{- $plugin := $known.devicePlugin -}}
  {{- if regexMatch (printf "^(%s)$" $plugin.resources) $last -}}
    {{- range .env -}}
      {{- if and (eq .name $plugin.variable) (not (has (get . "value") $plugin.values)) -}}
        {{- $own := printf "group %q: env has %s" $group $plugin.variable -}}
        {{- $subject := printf "%s but resources.limits[%q] is %d" $own $last (int $gpus) -}}
        {{- fail
          (printf "%s: the device plugin sets it to the GPUs that a worker gets, so remove it" $subject) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The master starts one mpirun for all groups, which names the rank of each line or of no line. */}}
{{- define "horovod.checkTags" -}}
{{- $first := first .facts.groups -}}
{{- $given := include "horovod.tagEntry" $first | default "not set" -}}
{{- range rest .facts.groups -}}
  {{- $own := include "horovod.tagEntry" . | default "not set" -}}
  {{- if ne $own $given -}}
    {{- $problem := printf
      "HVD_TAG_OUTPUT in env is %s for group %q but %s for group %q" $given $first.name $own .name -}}
    {{- fail
      (printf "%s: either all lines of a run name their rank or none; set it in worker.env only" $problem) -}}
  {{- end -}}
{{- end -}}
{{- end }}
