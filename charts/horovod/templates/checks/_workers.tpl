{{/* Refusals of the number of workers, of those that the run may do without, and of their GPUs. */}}

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

{{- define "horovod.checkMinimum" -}}
{{- range .facts.groups -}}
  {{- if gt (int .minimum) (int .number) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s.minimum is %d but %s.number is %d"
        .valuesKey (int .minimum) .valuesKey (int .number))
      "do" "give at most the number of workers") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
A command line that names workers needs each of them: no spare can replace it. With the numbers in $needed,
the run needs every worker.
*/}}
{{- define "horovod.checkNamedWorkers" -}}
{{- range $group := .facts.groups -}}
  {{- $worker := printf "\\b%s-[0-9]+" .objectName -}}
  {{- range $key, $needed := dict "minimum" (int .number) "spares" 0 -}}
    {{- $number := get $group $key | default $needed | int -}}
    {{- if ne $number $needed -}}
      {{- range $.facts.values.master.args -}}
        {{- with regexFind $worker . -}}
          {{- include "horovod.refuse" (dict
            "what" (printf "%s.%s is %d but master.args names the worker %q"
              $group.valuesKey $key $number .)
            "why" "the run may do without this worker"
            "do" (printf "%s, or set %s.%s to %d"
              "take the workers from the file $(HOSTFILE), or from the launcher's line $(LAUNCH)"
              $group.valuesKey $key $needed)) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkGpuMakers" -}}
{{- range .facts.groups -}}
  {{- if gt (len .gpuMakers) 1 -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s.resources.limits has GPUs of %s" .valuesKey (join " and " .gpuMakers))
      "why" "the libraries of a worker's image use GPUs of one maker"
      "do" "make workerGroups, one for each, with an image of its own") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkSlots" -}}
{{- range .facts.groups -}}
  {{- if and .gpus (ne .gpus (int .slots)) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s.slots is %d but %s" .valuesKey (int .slots) (include "horovod.gpuLimits" .))
      "why" "each rank uses one GPU"
      "do" "make them equal") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The keys of a group's limits of GPUs, and their sum, for a refusal. */}}
{{- define "horovod.gpuLimits" -}}
{{- $keys := list -}}
{{- range .gpuResources -}}
  {{- $keys = append $keys (printf "%s.resources.limits[%q]" $.valuesKey .) -}}
{{- end -}}
{{- $verb := ternary "make up" "is" (gt (len $keys) 1) -}}
{{- printf "%s %s %d" (join " and " $keys) $verb .gpus -}}
{{- end }}

{{/* The variable with which a device plugin gives a worker its GPUs. */}}
{{- define "horovod.checkDevicePlugin" -}}
{{- $plugin := .facts.shared.devicePlugin -}}
{{- range $group := .facts.groups -}}
  {{- /* horovod.checkGpuMakers refuses several makers: what one resource matches, the others do, too. */ -}}
  {{- if regexMatch (printf "^(%s)$" $plugin.resources) (first .gpuResources | default "") -}}
    {{- range .env -}}
      {{- if and (eq .name $plugin.variable) (not (has (get . "value") $plugin.values)) -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "%s.env has %s but %s"
            $group.valuesKey .name (include "horovod.gpuLimits" $group))
          "why" "the device plugin sets it to the GPUs that a worker gets"
          "do" "remove it") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
