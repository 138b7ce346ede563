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
{{- if .Values.launch.options -}}
{{- with include "horovod.optionProblem" . -}}{{- fail . -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
Why launch.options cannot be used with these values; empty when they can. files/hvd_pods/common/launcher_options.json
says which value replaces an option, and which launchers have it. Only the master knows the MPI of its image: it refuses
options of another MPI (hvd_pods/common/launcher_options.py).
*/}}
{{- define "horovod.optionProblem" -}}
{{- $values := .Values -}}
{{- $data := .Files.Get "files/hvd_pods/common/launcher_options.json" | fromJson -}}
{{- $mode := $values.launch.mode -}}
{{- $options := dict -}}
{{- range $option := $data.options -}}
{{- range .names -}}{{- $_ := set $options . $option -}}{{- end -}}
{{- end -}}
{{- $problems := list -}}
{{- if eq $mode "direct" -}}
{{- $why := "but launch.mode is direct, which takes no options: remove it" -}}
{{- range $values.launch.options -}}{{- $problems = append $problems (printf "launch.options has %q, %s" . $why) -}}{{- end -}}
{{- end -}}
{{- /* How many of the next words are arguments of the option before them, and so no options. */ -}}
{{- $arguments := 0 -}}
{{- range $word := $values.launch.options -}}
{{- $name := regexReplaceAll "^-+" $word "" | splitList "=" | first -}}
{{- $option := get $options $name -}}
{{- if gt $arguments 0 -}}
{{- $arguments = sub $arguments 1 | int -}}
{{- else if and $option (hasPrefix "-" $word) -}}
{{- $arguments = ternary 0 (int $option.arguments) (contains "=" $word) -}}
{{- $modes := list -}}
{{- range $other, $launchers := $data.modes -}}
{{- range $launchers -}}
{{- if has . ($option.readBy | default $launchers) -}}{{- $modes = append $modes $other -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $problem := "" -}}
{{- if $option.value -}}
{{- $problem = printf "the chart sets that from %s: remove it from launch.options" $option.value -}}
{{- else if not (has $mode $modes) -}}
{{- $problem = printf "launch.mode is %s, whose launcher does not have that option" $mode -}}
{{- $problem = printf "%s: remove it, or set launch.mode to %s" $problem ($modes | uniq | join " or ") -}}
{{- else if and $option.interface $values.network.interface -}}
{{- $problem = printf "network.interface is %q: give one of the two" $values.network.interface -}}
{{- else if and $option.binding (ne $values.launch.binding.to "none") -}}
{{- $remedy := "give one of the two (launch.binding.to none leaves it to the options)" -}}
{{- $problem = printf "launch.binding.to is %s: %s" $values.launch.binding.to $remedy -}}
{{- end -}}
{{- with $problem -}}{{- $problems = append $problems (printf "launch.options has %q, but %s" $name .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with $problems -}}{{- first . -}}{{- end -}}
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
