{{/* Refusals of launch settings. */}}

{{- define "horovod.checkLaunch" -}}
{{- $mode := .Values.launch.mode -}}
{{- $hasLaunch := has "$(LAUNCH)" .Values.master.args -}}
{{- if eq $mode "custom" -}}
{{- if not .Values.master.args -}}
{{- fail "launch.mode is custom but master.args is empty: give the complete command line there" -}}
{{- end -}}
{{- if and (not $hasLaunch) (or .Values.launch.options (ne .Values.launch.binding.to "none")) -}}
{{- $problem := "launch.options or launch.binding is given and master.args has no argument $(LAUNCH) to use them" -}}
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
{{- fail (printf "launch.framework is mpi but launch.mode is direct: %s; set launch.mode to mpirun" $why) -}}
{{- end -}}
{{- /* The master judges the options of a launcher: they depend on the MPI of its image (docs/adr/0028). */ -}}
{{- if and (eq $mode "direct") .Values.launch.options -}}
{{- $why := "but launch.mode is direct, which takes no options: remove it" -}}
{{- fail (printf "launch.options has %q, %s" (first .Values.launch.options) $why) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkBinding" -}}
{{- $binding := .Values.launch.binding -}}
{{- $needed := get (dict "core" "coresPerRank" "socket" "ranksPerSocket") $binding.to -}}
{{- if and $needed (not (get $binding $needed)) -}}
{{- fail (printf "launch.binding.to is %s but launch.binding.%s is not given: give the number" $binding.to $needed) -}}
{{- end -}}
{{- if and (ne $binding.to "core") $binding.coresPerRank -}}
{{- $pair := printf "coresPerRank is %d but launch.binding.to is %s" (int $binding.coresPerRank) $binding.to -}}
{{- fail (printf "launch.binding.%s: it applies only with core" $pair) -}}
{{- end -}}
{{- if and (eq $binding.to "none") $binding.ranksPerSocket -}}
{{- $pair := printf "ranksPerSocket is %d but launch.binding.to is none" (int $binding.ranksPerSocket) -}}
{{- fail (printf "launch.binding.%s: it applies only with core or socket" $pair) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkElastic" -}}
{{- $elastic := .Values.launch.elastic -}}
{{- if eq .Values.launch.mode "elastic" -}}
{{- if not .horovod.serviceAccount -}}
{{- $none := "there is no serviceAccount (serviceAccount.create is false, serviceAccount.name empty)" -}}
{{- fail (printf "launch.mode is elastic but %s: the master follows its hosts through the API" $none) -}}
{{- end -}}
{{- if and .Values.hostNetwork (not .Values.network.interface) -}}
{{- $problem := "launch.mode is elastic and hostNetwork is true, but network.interface is empty" -}}
{{- fail (printf "%s: Gloo needs the name of the nodes' interface there" $problem) -}}
{{- end -}}
{{- if and $elastic.minRanks $elastic.maxRanks (gt (int $elastic.minRanks) (int $elastic.maxRanks)) -}}
{{- $least := printf "launch.elastic.minRanks is %d" (int $elastic.minRanks) -}}
{{- $most := printf "launch.elastic.maxRanks is %d" (int $elastic.maxRanks) -}}
{{- fail (printf "%s but %s: the minimum must not exceed the maximum" $least $most) -}}
{{- end -}}
{{- $ranks := 0 -}}
{{- range .horovod.groups -}}{{- $ranks = add $ranks (mul (int .number) (int .slots)) -}}{{- end -}}
{{- if and $elastic.maxRanks (gt (int $ranks) (int $elastic.maxRanks)) -}}
{{- $most := printf "launch.elastic.maxRanks is %d: raise it or start with fewer workers" (int $elastic.maxRanks) -}}
{{- fail (printf "number and slots make %d ranks but %s" (int $ranks) $most) -}}
{{- end -}}
{{- if and $elastic.minRanks (lt (int $ranks) (int $elastic.minRanks)) -}}
{{- $least := printf "launch.elastic.minRanks is %d: lower it or start with more workers" (int $elastic.minRanks) -}}
{{- fail (printf "number and slots make %d ranks but %s" (int $ranks) $least) -}}
{{- end -}}
{{- else if or $elastic.minRanks $elastic.maxRanks -}}
{{- $problem := printf "launch.elastic.minRanks or maxRanks is set but launch.mode is %s" .Values.launch.mode -}}
{{- fail (printf "%s: they apply only in mode elastic" $problem) -}}
{{- end -}}
{{- end }}

{{/* horovodrun keeps one client in the master for each rank: its memory must be enough for them. */}}
{{- define "horovod.checkMemory" -}}
{{- $known := (.Files.Get "files/hvd_pods/common/launcher_options.json" | fromJson).connections -}}
{{- $mode := .Values.launch.mode -}}
{{- if has $mode $known.perRank -}}
{{- $ranks := 0 -}}
{{- range .horovod.groups -}}{{- $ranks = add $ranks (mul (int .number) (int .slots)) -}}{{- end -}}
{{- $ranks = max $ranks (int (.Values.launch.elastic.maxRanks | default 0)) -}}
{{- $needed := add (int $known.baseMebibytes) (mul (int $known.clientMebibytes) $ranks) -}}
{{- $resources := .Values.master.resources | default dict -}}
{{- range $kind := list "requests" "limits" -}}
{{- $given := dig $kind "memory" "" $resources -}}
{{- if and $given (lt (include "horovod.quantity" $given | float64) (mulf $needed 1048576)) -}}
{{- $why := printf "%s keeps a client for each of %d ranks, which need %dMi" $mode (int $ranks) (int $needed) -}}
{{- $key := printf "master.resources.%s.memory" $kind -}}
{{- $remedy := printf "set %s to %dMi or more" $key (int $needed) -}}
{{- fail (printf "%s is %v but launch.mode is %s: %s; %s" $key $given $mode $why $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
