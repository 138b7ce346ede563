{{/* Refusals of worker groups, and of where they run. */}}

{{- define "horovod.checkGroups" -}}
{{- $names := list -}}
{{- $longest := ternary "alone" "inQueue" (empty .horovod.kueue) | get .horovod.known.statefulSetName | int -}}
{{- range .horovod.groups -}}
{{- if gt (len .statefulSet) $longest -}}
{{- $subject := printf "StatefulSet name %q has %d characters: use at most %d" .statefulSet (len .statefulSet) $longest -}}
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
{{- include "horovod.checkHosts" . -}}
{{- include "horovod.checkSpares" . -}}
{{- include "horovod.checkGpus" . -}}
{{- include "horovod.checkTags" . -}}
{{- end }}

{{/* The Role names every pod that the master may replace, so that the number of hosts has a limit. */}}
{{- define "horovod.checkHosts" -}}
{{- $most := .horovod.known.hosts | int -}}
{{- $hosts := add .horovod.hosts .horovod.spares | int -}}
{{- if gt $hosts $most -}}
{{- $source := "number and spares of worker and workerGroups" -}}
{{- $advice := printf "the chart supports at most %d; lower one of them" $most -}}
{{- fail (printf "%s make up to %d hosts: %s" $source $hosts $advice) -}}
{{- end -}}
{{- end }}

{{/* Refuses spares that could never replace a host, and a minimum that could never be used. */}}
{{- define "horovod.checkSpares" -}}
{{- $root := . -}}
{{- range $group := .horovod.groups -}}
{{- if gt (int $group.minimum) (int $group.number) -}}
{{- $given := printf "group %q: minimum is %d but number is %d" $group.name (int $group.minimum) (int $group.number) -}}
{{- fail (printf "%s: give at most the number of workers" $given) -}}
{{- end -}}
{{- range $key := list "spares" "minimum" -}}
{{- if get $group $key -}}
{{- $given := printf "group %q: %s is %d" $group.name $key (int (get $group $key)) -}}
{{- range $root.Values.master.args -}}
{{- with regexFind (printf "\\b%s-[0-9]+" $group.statefulSet) . -}}
{{- $remedy := "take the hosts from the file $(HOSTFILE), or from the launcher's line $(LAUNCH)" -}}
{{- fail (printf "%s but master.args names the host %q, which the run may do without: %s" $given . $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkGpus" -}}
{{- $known := .horovod.known -}}
{{- $pattern := printf "^(%s)$" $known.gpus -}}
{{- range .horovod.groups -}}
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
{{- $subject := printf "group %q: slots is %d but resources.limits[%q] is %d" .name (int .slots) $last (int $gpus) -}}
{{- fail (printf "%s: Horovod runs one rank per GPU, so make them equal" $subject) -}}
{{- end -}}
{{- $group := .name -}}
{{- $plugin := $known.devicePlugin -}}
{{- if regexMatch (printf "^(%s)$" $plugin.resources) $last -}}
{{- range .env -}}
{{- if and (eq .name $plugin.variable) (not (has (get . "value") $plugin.values)) -}}
{{- $own := printf "group %q: env has %s" $group $plugin.variable -}}
{{- $subject := printf "%s but resources.limits[%q] is %d" $own $last (int $gpus) -}}
{{- fail (printf "%s: the device plugin sets it to the GPUs that a worker gets, so remove it" $subject) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The master starts one mpirun for all groups, which names the rank of each line or of no line. */}}
{{- define "horovod.checkTags" -}}
{{- $first := first .horovod.groups -}}
{{- $given := include "horovod.tagEntry" $first | default "not set" -}}
{{- range rest .horovod.groups -}}
{{- $own := include "horovod.tagEntry" . | default "not set" -}}
{{- if ne $own $given -}}
{{- $problem := printf "TAG_OUTPUT in env is %s for group %q but %s for group %q" $given $first.name $own .name -}}
{{- fail (printf "%s: either all lines of a run name their rank or none; set it in worker.env only" $problem) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkPlacement" -}}
{{- $user := .Values.podSecurityContext.runAsUser -}}
{{- range .horovod.groups -}}
{{- if and (eq .spread "Required") (hasKey .affinity "podAntiAffinity") -}}
{{- $subject := printf "group %q: spread is Required but affinity.podAntiAffinity is given too" .name -}}
{{- fail (printf "%s: use only one of them (spread: None leaves it to affinity)" $subject) -}}
{{- end -}}
{{- if and .capabilities (ne (toString $user) "0") -}}
{{- $uid := toString ($user | default "the image's") -}}
{{- $pair := printf "capabilities is %s but podSecurityContext.runAsUser is %s" (toJson .capabilities) $uid -}}
{{- $rule := "Linux gives added capabilities to root only" -}}
{{- $remedy := "run as 0 (with runAsNonRoot: false), or remove them and raise the node's memlock limit instead" -}}
{{- fail (printf "group %q: %s: %s; %s" .name $pair $rule $remedy) -}}
{{- end -}}
{{- end -}}
{{- end }}
