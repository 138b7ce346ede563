{{/* Refusals of launch settings that contradict each other; validate.yaml includes them. They render nothing. */}}

{{/* Why launch.options cannot be used, empty when they can: the launchers of launch.mode must have them, and no value set the same. By files/launchers.json. */}}
{{- define "horovod.optionProblem" -}}
{{- $problem := "" -}}
{{- if .Values.launch.options -}}
{{- $knowledge := .Files.Get "files/launchers.json" | fromJson -}}
{{- $mode := .Values.launch.mode -}}
{{- $interface := .Values.network.interface -}}
{{- $binding := .Values.launch.binding.to -}}
{{- $known := dict -}}
{{- range $option := $knowledge.options -}}
{{- range .names -}}{{- $_ := set $known . $option -}}{{- end -}}
{{- end -}}
{{- /* The launchers that have all of the options so far. */ -}}
{{- $launchers := get $knowledge.modes $mode -}}
{{- /* How many of the next words are arguments of the option before them, and so no options. */ -}}
{{- $values := 0 -}}
{{- range .Values.launch.options -}}
{{- if gt $values 0 -}}
{{- $values = sub $values 1 | int -}}
{{- else -}}
{{- $name := "" -}}
{{- if hasPrefix "-" . -}}{{- $name = regexReplaceAll "^-+" . "" | splitList "=" | first -}}{{- end -}}
{{- $option := get $known $name | default dict -}}
{{- if not (contains "=" .) -}}{{- $values = int ($option.arguments | default 0) -}}{{- end -}}
{{- $readBy := $option.readBy | default $launchers -}}
{{- $modes := list -}}
{{- range $other, $ids := $knowledge.modes -}}
{{- range $ids -}}{{- if has . $readBy -}}{{- $modes = append $modes $other -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $left := list -}}
{{- range $launchers -}}{{- if has . $readBy -}}{{- $left = append $left . -}}{{- end -}}{{- end -}}
{{- if $problem -}}
{{- else if $option.value -}}
{{- $problem = printf "launch.options has %q, but the chart sets that from %s: remove it from launch.options" $name $option.value -}}
{{- else if not (has $mode $modes) -}}
{{- $problem = printf "launch.options has %q, but launch.mode is %s, whose launcher does not have that option: remove it, or set launch.mode to %s" $name $mode ($modes | uniq | join " or ") -}}
{{- else if not $left -}}
{{- $problem = printf "launch.options has %q, but no MPI has both that option and those before it: give the options of the image's MPI only" $name -}}
{{- else if and $option.interface $interface -}}
{{- $problem = printf "launch.options has %q, but network.interface is %q: give one of the two" $name $interface -}}
{{- else if and $option.binding (ne $binding "none") -}}
{{- $problem = printf "launch.options has %q, but launch.binding.to is %s: give one of the two (launch.binding.to none leaves it to the options)" $name $binding -}}
{{- end -}}
{{- $launchers = $left -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $problem -}}
{{- end }}

{{- define "horovod.checkLaunch" -}}
{{- $mode := .Values.launch.mode -}}
{{- $hasLaunch := has "$(LAUNCH)" .Values.master.args -}}
{{- if eq $mode "custom" -}}
{{- if not .Values.master.args -}}
{{- fail "launch.mode is custom but master.args is empty: give the complete command line there" -}}
{{- end -}}
{{- if and (not $hasLaunch) (or .Values.launch.options (ne .Values.launch.binding.to "none")) -}}
{{- fail "launch.mode is custom, but launch.options or launch.binding is given and master.args has no argument $(LAUNCH) that would use them: write them into master.args" -}}
{{- end -}}
{{- else if $hasLaunch -}}
{{- fail (printf "master.args has $(LAUNCH) but launch.mode is %s: it stands for the launcher's command line in mode custom" $mode) -}}
{{- end -}}
{{- with include "horovod.optionProblem" . -}}{{- fail . -}}{{- end -}}
{{- end }}

{{- define "horovod.checkBinding" -}}
{{- $binding := .Values.launch.binding -}}
{{- $needed := get (dict "core" "coresPerRank" "socket" "ranksPerSocket") $binding.to -}}
{{- if and $needed (not (get $binding $needed)) -}}
{{- fail (printf "launch.binding.to is %s but launch.binding.%s is not given: give the number" $binding.to $needed) -}}
{{- end -}}
{{- if and (ne $binding.to "core") $binding.coresPerRank -}}
{{- fail (printf "launch.binding.coresPerRank is %d but launch.binding.to is %s: it applies only with core" (int $binding.coresPerRank) $binding.to) -}}
{{- end -}}
{{- if and (eq $binding.to "none") $binding.ranksPerSocket -}}
{{- fail (printf "launch.binding.ranksPerSocket is %d but launch.binding.to is none: it applies only with core or socket" (int $binding.ranksPerSocket)) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkElastic" -}}
{{- $elastic := .Values.launch.elastic -}}
{{- if eq .Values.launch.mode "elastic" -}}
{{- if not (include "horovod.serviceAccount" .) -}}
{{- fail "launch.mode is elastic but there is no serviceAccount (serviceAccount.create is false, serviceAccount.name empty): the master follows its hosts through the API" -}}
{{- end -}}
{{- if and .Values.hostNetwork (not .Values.network.interface) -}}
{{- fail "launch.mode is elastic and hostNetwork is true, but network.interface is empty: Gloo needs the name of the nodes' interface there" -}}
{{- end -}}
{{- if and $elastic.minRanks $elastic.maxRanks (gt (int $elastic.minRanks) (int $elastic.maxRanks)) -}}
{{- fail (printf "launch.elastic.minRanks is %d but launch.elastic.maxRanks is %d: the minimum must not exceed the maximum" (int $elastic.minRanks) (int $elastic.maxRanks)) -}}
{{- end -}}
{{- $ranks := 0 -}}
{{- range .horovod.groups -}}{{- $ranks = add $ranks (mul (int .number) (int .slots)) -}}{{- end -}}
{{- if and $elastic.maxRanks (gt (int $ranks) (int $elastic.maxRanks)) -}}
{{- fail (printf "number and slots make %d ranks but launch.elastic.maxRanks is %d: raise it or start with fewer workers" (int $ranks) (int $elastic.maxRanks)) -}}
{{- end -}}
{{- if and $elastic.minRanks (lt (int $ranks) (int $elastic.minRanks)) -}}
{{- fail (printf "number and slots make %d ranks but launch.elastic.minRanks is %d: lower it or start with more workers" (int $ranks) (int $elastic.minRanks)) -}}
{{- end -}}
{{- else if or $elastic.minRanks $elastic.maxRanks -}}
{{- fail (printf "launch.elastic.minRanks or maxRanks is set but launch.mode is %s: they apply only in mode elastic" .Values.launch.mode) -}}
{{- end -}}
{{- end }}

{{/* horovodrun keeps one SSH client in the master for each rank: its memory must be enough for them. */}}
{{- define "horovod.checkMemory" -}}
{{- $known := (.Files.Get "files/launchers.json" | fromJson).connections -}}
{{- $mode := .Values.launch.mode -}}
{{- if has $mode $known.perRank -}}
{{- $ranks := 0 -}}
{{- range .horovod.groups -}}{{- $ranks = add $ranks (mul (int .number) (int .slots)) -}}{{- end -}}
{{- $ranks = max $ranks (int (.Values.launch.elastic.maxRanks | default 0)) -}}
{{- $needed := add (int $known.baseMebibytes) (mul (int $known.clientMebibytes) $ranks) -}}
{{- $resources := .Values.master.resources | default dict -}}
{{- range $kind := list "requests" "limits" -}}
{{- $given := dig $kind "memory" "" $resources -}}
{{- if and $given (lt (include "horovod.mebibytes" $given | float64) (float64 $needed)) -}}
{{- $why := printf "%s keeps an SSH client for each of %d ranks, which need %dMi" $mode (int $ranks) (int $needed) -}}
{{- $key := printf "master.resources.%s.memory" $kind -}}
{{- fail (printf "%s is %v but launch.mode is %s: %s; set %s to %dMi or more" $key $given $mode $why $key (int $needed)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A quantity of memory, such as 1Gi or 2.5e9, in MiB. */}}
{{- define "horovod.mebibytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[kKMGT]i?$" $text -}}
{{- divf (mulf (trimSuffix $unit $text | float64) (get $units $unit)) 1048576 -}}
{{- end }}
