{{/* Refusals of launch settings. */}}

{{- define "horovod.checkLaunch" -}}
{{- $mode := .Values.launch.mode -}}
{{- $hasLaunch := has "$(LAUNCH)" .Values.master.args -}}
{{- if eq $mode "custom" -}}
  {{- if not .Values.master.args -}}
    {{- fail "launch.mode is custom but master.args is empty: give the complete command line there" -}}
  {{- end -}}
  {{- if and (not $hasLaunch) (or .Values.launch.options (ne .Values.launch.binding.to "none")) -}}
    {{- $problem :=
      "launch.options or launch.binding is given and master.args has no argument $(LAUNCH) to use them" -}}
    {{- fail (printf "launch.mode is custom, but %s: write them into master.args" $problem) -}}
  {{- end -}}
{{- else if $hasLaunch -}}
  {{- $rule := "only mode custom replaces it; remove it, or set launch.mode to custom" -}}
  {{- fail (printf "master.args has $(LAUNCH) but launch.mode is %s: %s" $mode $rule) -}}
{{- else if .Values.launch.allowIdleWorkers -}}
  {{- $rule := "its launcher uses the workers; remove it, or set launch.mode to custom" -}}
  {{- fail (printf "launch.allowIdleWorkers is true but launch.mode is %s: %s" $mode $rule) -}}
{{- end -}}
{{- if and (eq $mode "direct") (eq .Values.launch.framework "mpi") -}}
  {{- $why := "each rank of an MPI program would find itself alone" -}}
  {{- fail
    (printf "launch.framework is mpi but launch.mode is direct: %s; set launch.mode to mpirun" $why) -}}
{{- end -}}
{{- /* The master judges the options of a launcher: they depend on the MPI of its image
(docs/adr/0028). */ -}}
{{- if and (eq $mode "direct") .Values.launch.options -}}
  {{- $given := first .Values.launch.options -}}
  {{- fail (printf "launch.options has %q, but launch.mode is direct, which takes none: remove it" $given) -}}
{{- end -}}
{{- $programs := (.Files.Get "files/hvd_pods/common/launcher_options.json" | fromJson).programs -}}
{{- $program := first .Values.master.args | default "" | base -}}
{{- if and (ne $mode "custom") (has $program $programs) -}}
  {{- $remedy := print "write the ranks' command alone, or set launch.mode to custom; "
    "hvdchart migrate converts the line" -}}
  {{- fail (printf "master.args begins with %s, which starts ranks itself: %s" $program $remedy) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkBinding" -}}
{{- $binding := .Values.launch.binding -}}
{{- $needed := get (dict "core" "coresPerRank" "socket" "ranksPerSocket") $binding.to -}}
{{- if and $needed (not (get $binding $needed)) -}}
  {{- fail (printf
    "launch.binding.to is %s but launch.binding.%s is not given: give the number" $binding.to $needed) -}}
{{- end -}}
{{- if and (ne $binding.to "core") $binding.coresPerRank -}}
  {{- $pair := printf
    "coresPerRank is %d but launch.binding.to is %s" (int $binding.coresPerRank) $binding.to -}}
  {{- fail (printf "launch.binding.%s: it applies only with core" $pair) -}}
{{- end -}}
{{- if and (eq $binding.to "none") $binding.ranksPerSocket -}}
  {{- $pair := printf "ranksPerSocket is %d but launch.binding.to is none" (int $binding.ranksPerSocket) -}}
  {{- fail (printf "launch.binding.%s: it applies only with core or socket" $pair) -}}
{{- end -}}
{{- end }}
