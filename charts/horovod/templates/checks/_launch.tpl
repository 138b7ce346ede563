{{/* Refusals of how the run is launched. */}}

{{/* In mode custom, the user writes the launcher's command line, else the chart does. */}}
{{- define "horovod.checkCustomMode" -}}
{{- $launch := .facts.values.launch -}}
{{- $args := .facts.values.master.args -}}
{{- $isCustom := eq $launch.mode "custom" -}}
{{- if and $isCustom (not $args) -}}
  {{- include "horovod.refuse" (dict
    "what" "launch.mode is custom but master.args is empty"
    "do" "give the complete command line there") -}}
{{- end -}}
{{- if and (not $isCustom) (has "$(LAUNCH)" $args) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "master.args has $(LAUNCH) but launch.mode is %s" $launch.mode)
    "why" "only mode custom replaces it"
    "do" "remove it, or set launch.mode to custom") -}}
{{- end -}}
{{- end }}

{{/* Settings that the launcher of a mode does not use. */}}
{{- define "horovod.checkCustomSettings" -}}
{{- $launch := .facts.values.launch -}}
{{- $isCustom := eq $launch.mode "custom" -}}
{{- $isGiven := or $launch.options (ne $launch.binding.to "none") -}}
{{- if and $isCustom $isGiven (not (has "$(LAUNCH)" .facts.values.master.args)) -}}
  {{- include "horovod.refuse" (dict
    "what" "launch.mode is custom, but launch.options or launch.binding is given"
    "why" "master.args has no argument $(LAUNCH) to use them"
    "do" "write them into master.args") -}}
{{- end -}}
{{- if and (not $isCustom) $launch.allowIdleWorkers -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.allowIdleWorkers is true but launch.mode is %s" $launch.mode)
    "why" "its launcher uses the workers"
    "do" "remove it, or set launch.mode to custom") -}}
{{- end -}}
{{- end }}

{{/*
Settings that the master itself, as the launcher, cannot use. The master judges the options of other
launchers: they depend on the MPI of its image (ADR 28).
*/}}
{{- define "horovod.checkDirectMode" -}}
{{- $launch := .facts.values.launch -}}
{{- $isDirect := eq $launch.mode "direct" -}}
{{- if and $isDirect (eq $launch.framework "mpi") -}}
  {{- include "horovod.refuse" (dict
    "what" "launch.framework is mpi but launch.mode is direct"
    "why" "each rank of an MPI program would find itself alone"
    "do" "set launch.mode to mpirun") -}}
{{- end -}}
{{- if and $isDirect $launch.options -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.options has %q, but launch.mode is direct" (first $launch.options))
    "why" "that mode takes none"
    "do" "remove it") -}}
{{- end -}}
{{- end }}

{{/* A launcher that another launcher would start. */}}
{{- define "horovod.checkProgram" -}}
{{- $mode := .facts.values.launch.mode -}}
{{- $program := first .facts.values.master.args | default "" | base -}}
{{- if and (ne $mode "custom") (has $program .facts.launchers.programs) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "master.args begins with %s but launch.mode is %s" $program $mode)
    "why" "that program starts ranks itself"
    "do" "write the ranks' command alone, as hvdchart migrate does, or set launch.mode to custom") -}}
{{- end -}}
{{- end }}

{{/* The binding and the numbers that it needs. */}}
{{- define "horovod.checkBinding" -}}
{{- $binding := .facts.values.launch.binding -}}
{{- $needed := get (dict "core" "coresPerRank" "socket" "ranksPerSocket") $binding.to -}}
{{- if and $needed (not (get $binding $needed)) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.binding.to is %s but launch.binding.%s is not given" $binding.to $needed)
    "do" "give the number") -}}
{{- end -}}
{{- if and (ne $binding.to "core") $binding.coresPerRank -}}
  {{- $cores := int $binding.coresPerRank -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.binding.coresPerRank is %d but launch.binding.to is %s" $cores $binding.to)
    "why" "it applies only with core") -}}
{{- end -}}
{{- if and (eq $binding.to "none") $binding.ranksPerSocket -}}
  {{- $ranks := int $binding.ranksPerSocket -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.binding.ranksPerSocket is %d but launch.binding.to is none" $ranks)
    "why" "it applies only with core or socket") -}}
{{- end -}}
{{- end }}

{{/* The master starts one mpirun for all groups, which names the rank of each line or of no line. */}}
{{- define "horovod.checkTags" -}}
{{- $first := first .facts.groups -}}
{{- $tags := ternary "not set" (toJson $first.tagOutput) (empty $first.tagOutput) -}}
{{- range rest .facts.groups -}}
  {{- $otherTags := ternary "not set" (toJson .tagOutput) (empty .tagOutput) -}}
  {{- if ne $otherTags $tags -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "HVD_TAG_OUTPUT is %s in %s.env but %s in %s.env"
        $tags $first.valuesKey $otherTags .valuesKey)
      "why" "either all lines of a run name their rank or none"
      "do" "set it in worker.env only") -}}
  {{- end -}}
{{- end -}}
{{- end }}
