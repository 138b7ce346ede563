{{/* Refusals of launch settings that disagree; validate.yaml includes them. They render nothing. */}}

{{/* JSON list of the options in launch.options: without dashes, and without a value that follows a "=". */}}
{{- define "horovod.optionNames" -}}
{{- $names := list -}}
{{- range .Values.launch.options -}}
{{- if hasPrefix "-" . -}}{{- $names = append $names (regexReplaceAll "^-+" . "" | splitList "=" | first) -}}{{- end -}}
{{- end -}}
{{ $names | toJson }}
{{- end }}

{{- define "horovod.checkLaunch" -}}
{{- $mode := .Values.launch.mode -}}
{{- $hasLaunch := has "$(LAUNCH)" .Values.master.args -}}
{{- if eq $mode "custom" -}}
{{- if not .Values.master.args -}}
{{- fail "launch.mode is custom but master.args is empty: give the whole command line there" -}}
{{- end -}}
{{- if and (not $hasLaunch) (or .Values.launch.options (ne .Values.launch.binding.to "none")) -}}
{{- fail "launch.mode is custom, but launch.options or launch.binding is given and master.args has no argument $(LAUNCH) that would take them in: write them into master.args" -}}
{{- end -}}
{{- else if $hasLaunch -}}
{{- fail (printf "master.args has $(LAUNCH) but launch.mode is %s: it stands for the launcher's line in mode custom" $mode) -}}
{{- end -}}
{{- $ofChart := dict "np" "worker.number and worker.slots" "n" "worker.number and worker.slots" "num-proc" "worker.number and worker.slots" "hostfile" "worker.number" "host" "worker.number" "hosts" "worker.number" "H" "worker.number" "machinefile" "worker.number" "ssh-port" "ssh.port" "host-discovery-script" "launch.mode elastic" "min-np" "launch.elastic.minRanks" "min-num-proc" "launch.elastic.minRanks" "max-np" "launch.elastic.maxRanks" "max-num-proc" "launch.elastic.maxRanks" "slots-per-host" "worker.slots" -}}
{{- $ofMpirun := list "mca" "gmca" "prtemca" "map-by" "bind-to" "report-bindings" "tag-output" "display-map" "x" "genv" "ppn" "oversubscribe" -}}
{{- $ofHorovodrun := list "gloo" "mpi" "js" "mpi-args" "binding-args" "start-timeout" "gloo-timeout-seconds" "fusion-threshold-mb" "cycle-time-ms" "autotune" "timeline-filename" "no-stall-check" -}}
{{- $interface := .Values.network.interface -}}
{{- range include "horovod.optionNames" . | fromJsonArray -}}
{{- if hasKey $ofChart . -}}
{{- fail (printf "launch.options has %q, but %s says that: leave it out there" . (get $ofChart .)) -}}
{{- end -}}
{{- if and $interface (has . (list "network-interface" "network-interfaces")) -}}
{{- fail (printf "launch.options has %q but network.interface is %q: say it in one of them" . $interface) -}}
{{- end -}}
{{- if and (has $mode (list "horovodrun" "elastic")) (has . $ofMpirun) -}}
{{- fail (printf "launch.options has %q, an option of mpirun, but launch.mode is %s: use launch.binding or network.transport, horovodrun's --mpi-args, or launch.mode mpirun" . $mode) -}}
{{- end -}}
{{- if and (has $mode (list "mpirun" "custom")) (has . $ofHorovodrun) -}}
{{- fail (printf "launch.options has %q, an option of horovodrun, but launch.mode is %s: leave it out, or set launch.mode to horovodrun" . $mode) -}}
{{- end -}}
{{- if and (eq $mode "elastic") (has . (list "mpi" "js" "mpi-args" "binding-args")) -}}
{{- fail (printf "launch.options has %q but launch.mode is elastic: elastic runs are started by Gloo, without MPI" .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkBinding" -}}
{{- $binding := .Values.launch.binding -}}
{{- $needed := get (dict "core" "coresPerRank" "socket" "ranksPerSocket") $binding.to -}}
{{- if and $needed (not (get $binding $needed)) -}}
{{- fail (printf "launch.binding.to is %s but launch.binding.%s is not given: say how many" $binding.to $needed) -}}
{{- end -}}
{{- if and (ne $binding.to "core") $binding.coresPerRank -}}
{{- fail (printf "launch.binding.coresPerRank is %d but launch.binding.to is %s: it only acts with core" (int $binding.coresPerRank) $binding.to) -}}
{{- end -}}
{{- if and (eq $binding.to "none") $binding.ranksPerSocket -}}
{{- fail (printf "launch.binding.ranksPerSocket is %d but launch.binding.to is none: it only acts with core or socket" (int $binding.ranksPerSocket)) -}}
{{- end -}}
{{- if ne $binding.to "none" -}}
{{- range include "horovod.optionNames" . | fromJsonArray -}}
{{- if has . (list "bind-to" "map-by" "rankfile" "cpu-set" "cpu-list" "binding-args" "npersocket") -}}
{{- fail (printf "launch.binding.to is %s but launch.options has %q: say it in one of them (launch.binding.to none leaves it to the options)" $binding.to .) -}}
{{- end -}}
{{- end -}}
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
{{- fail (printf "launch.elastic.minRanks is %d but launch.elastic.maxRanks is %d: the fewest cannot be more than the most" (int $elastic.minRanks) (int $elastic.maxRanks)) -}}
{{- end -}}
{{- $ranks := 0 -}}
{{- range include "horovod.groups" . | fromJsonArray -}}{{- $ranks = add $ranks (mul (int .number) (int .slots)) -}}{{- end -}}
{{- if and $elastic.maxRanks (gt (int $ranks) (int $elastic.maxRanks)) -}}
{{- fail (printf "number and slots make %d ranks but launch.elastic.maxRanks is %d: raise it or start with fewer workers" (int $ranks) (int $elastic.maxRanks)) -}}
{{- end -}}
{{- if and $elastic.minRanks (lt (int $ranks) (int $elastic.minRanks)) -}}
{{- fail (printf "number and slots make %d ranks but launch.elastic.minRanks is %d: lower it or start with more workers" (int $ranks) (int $elastic.minRanks)) -}}
{{- end -}}
{{- else if or $elastic.minRanks $elastic.maxRanks -}}
{{- fail (printf "launch.elastic.minRanks or maxRanks is set but launch.mode is %s: they only act in mode elastic" .Values.launch.mode) -}}
{{- end -}}
{{- end }}
