{{/* Refusals of how the run is launched and how it ends. */}}
{{- define "horovod.checkLaunch" -}}
{{- include "horovod.checkCommandLine" . -}}
{{- include "horovod.checkDirectMode" . -}}
{{- include "horovod.checkProgram" . -}}
{{- include "horovod.checkBinding" . -}}
{{- include "horovod.checkEndOfRun" . -}}
{{- end }}

{{/* Who writes the launcher's command line: the user in mode custom, else the chart. */}}
{{- define "horovod.checkCommandLine" -}}
{{- $launch := .facts.values.launch -}}
{{- $mode := $launch.mode -}}
{{- $hasLaunch := has "$(LAUNCH)" .facts.values.master.args -}}
{{- if eq $mode "custom" -}}
  {{- if not .facts.values.master.args -}}
    {{- include "horovod.refuse" (dict
      "what" "launch.mode is custom but master.args is empty"
      "do" "give the complete command line there") -}}
  {{- end -}}
  {{- if and (not $hasLaunch) (or $launch.options (ne $launch.binding.to "none")) -}}
    {{- include "horovod.refuse" (dict
      "what" "launch.mode is custom, but launch.options or launch.binding is given"
      "why" "master.args has no argument $(LAUNCH) to use them"
      "do" "write them into master.args") -}}
  {{- end -}}
{{- else if $hasLaunch -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "master.args has $(LAUNCH) but launch.mode is %s" $mode)
    "why" "only mode custom replaces it"
    "do" "remove it, or set launch.mode to custom") -}}
{{- else if $launch.allowIdleWorkers -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.allowIdleWorkers is true but launch.mode is %s" $mode)
    "why" "its launcher uses the workers"
    "do" "remove it, or set launch.mode to custom") -}}
{{- end -}}
{{- end }}

{{/* Settings that the master itself, as the launcher, cannot use. */}}
{{- define "horovod.checkDirectMode" -}}
{{- if and (eq .facts.values.launch.mode "direct") (eq .facts.values.launch.framework "mpi") -}}
  {{- include "horovod.refuse" (dict
    "what" "launch.framework is mpi but launch.mode is direct"
    "why" "each rank of an MPI program would find itself alone"
    "do" "set launch.mode to mpirun") -}}
{{- end -}}
{{- /* The master judges the options of a launcher: they depend on the MPI of its image
(docs/adr/0028). */ -}}
{{- if and (eq .facts.values.launch.mode "direct") .facts.values.launch.options -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "launch.options has %q, but launch.mode is direct" (first .facts.values.launch.options))
    "why" "that mode takes none"
    "do" "remove it") -}}
{{- end -}}
{{- end }}

{{/* A launcher that another launcher would start. */}}
{{- define "horovod.checkProgram" -}}
{{- $mode := .facts.values.launch.mode -}}
{{- $programs := (.Files.Get "files/hvd_pods/shared/launcher_options.json" | fromJson).programs -}}
{{- $program := first .facts.values.master.args | default "" | base -}}
{{- if and (ne $mode "custom") (has $program $programs) -}}
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

{{/* The end of the run: who scales the workers, and whether the Job is removed before. */}}
{{- define "horovod.checkEndOfRun" -}}
{{- $ttl := .facts.values.master.ttlSecondsAfterFinished -}}
{{- $cleanup := .facts.values.cleanup -}}
{{- if and (not (kindIs "invalid" $ttl)) (ne $cleanup "Always") -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "master.ttlSecondsAfterFinished is set but cleanup is %s" $cleanup)
    "why" "the workers of a failed run would remain after the Job is removed"
    "do" "set cleanup to Always") -}}
{{- end -}}
{{- if and (eq $cleanup "Always") (not .facts.serviceAccount) -}}
  {{- include "horovod.refuse" (dict
    "what" "cleanup is Always but serviceAccount.create is false and serviceAccount.name is empty"
    "why" "without a ServiceAccount, the master could not scale the workers") -}}
{{- end -}}
{{- end }}
