{{/* How the chart tunes Horovod in the workers. */}}

{{/*
Whether all ranks of the run would choose the same size of Horovod's fusion buffer, so that they may choose
it: empty or "yes". It is what a rank cannot see: that all groups run over MPI and on CPUs, and have the same
variables from env, a Secret and the image. What a rank sees is decided there (hvd_pods/rank/fusion.py): the
size, and whether its own environment has one already.
*/}}
{{- define "horovod.fusesByRanks" -}}
{{- $sources := list -}}
{{- $hasDevices := false -}}
{{- range .facts.groups -}}
  {{- $own := include "horovod.hasEnv" (dict "env" .env "name" "HOROVOD_FUSION_THRESHOLD") -}}
  {{- $sources = append $sources (list $own .envFrom .image | toJson) -}}
  {{- $hasDevices = or $hasDevices .podSpec.resourceClaims .podSpec.runtimeClassName -}}
  {{- range $resource, $count := (.resources).limits -}}
    {{- $hasDevices = or $hasDevices (and (contains "/" $resource) (int $count)) -}}
  {{- end -}}
{{- end -}}
{{- $areAlike := eq (len (uniq $sources)) 1 -}}
{{- if and (eq .Values.launch.mode "mpirun") (not $hasDevices) $areAlike -}}yes{{- end -}}
{{- end }}

{{/* The values of `horovod` as a JSON list of variables, without those that the group's env sets. */}}
{{- define "horovod.tuningVariables" -}}
{{- $horovod := .root.Values.horovod -}}
{{- $env := .group.env -}}
{{- $variables := dict -}}
{{- $output := include "horovod.hasEnv" (dict "env" $env "name" "OUTPUT_PATH") -}}
{{- /* Kubernetes expands $(OUTPUT_PATH), because it comes earlier in the list. */ -}}
{{- if $horovod.timeline -}}
  {{- $_ := set $variables "HOROVOD_TIMELINE" "$(OUTPUT_PATH)/horovod-timeline.json" -}}
{{- end -}}
{{- if $horovod.autotune -}}
  {{- $_ := set $variables "HOROVOD_AUTOTUNE" "1" -}}
  {{- if $output -}}
    {{- $_ := set $variables "HOROVOD_AUTOTUNE_LOG" "$(OUTPUT_PATH)/horovod-autotune.csv" -}}
  {{- end -}}
{{- end -}}
{{- $threshold := $horovod.fusionThresholdMiB -}}
{{- /* 0 is a valid threshold: it disables fusion. */ -}}
{{- if not (kindIs "invalid" $threshold) -}}
  {{- $_ := set $variables "HOROVOD_FUSION_THRESHOLD" (mul $threshold 1048576 | toString) -}}
{{- end -}}
{{- with $horovod.cycleTimeMs -}}{{- $_ := set $variables "HOROVOD_CYCLE_TIME" (toString .) -}}{{- end -}}
{{- $added := list -}}
{{- range $name, $value := $variables -}}
  {{- if not (include "horovod.hasEnv" (dict "env" $env "name" $name)) -}}
    {{- $added = append $added (dict "name" $name "value" $value) -}}
  {{- end -}}
{{- end -}}
{{ $added | toJson }}
{{- end }}
