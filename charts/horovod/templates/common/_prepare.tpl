{{/*
The facts: what follows from the values and from what the cluster has, computed once and in this file alone.

Every template file includes horovod.prepare first. Helm renders all files of a chart with the same root, so
the first call does the work and keeps the facts in .facts, which the templates print. The comment of each
step lists the facts that it adds, as NAME, NAME.KEY, or groups[].KEY for a key of each group. A step reads
the facts of those above it.
*/}}
{{- define "horovod.prepare" -}}
{{- if not (hasKey . "facts") -}}
  {{- $_ := set . "facts" dict -}}
  {{- /* Derive what follows from the values. */ -}}
  {{- include "horovod.prepareValues" . -}}
  {{- include "horovod.prepareNames" . -}}
  {{- include "horovod.preparePrograms" . -}}
  {{- include "horovod.prepareKeys" . -}}
  {{- include "horovod.prepareNetwork" . -}}
  {{- include "horovod.prepareGroups" . -}}
  {{- include "horovod.prepareTuning" . -}}
  {{- include "horovod.prepareGang" . -}}
  {{- include "horovod.prepareCode" . -}}
  {{- include "horovod.prepareScript" . -}}
  {{- include "horovod.checks" . -}}
  {{- /* The values are free of contradictions here. Find what the cluster has of the run. */ -}}
  {{- include "horovod.prepareRun" . -}}
  {{- include "horovod.findJob" . -}}
  {{- include "horovod.readEnd" . -}}
  {{- include "horovod.findSets" . -}}
  {{- include "horovod.findKeptPrograms" . -}}
  {{- include "horovod.checkKeptPrograms" . -}}
  {{- include "horovod.findNodes" . -}}
  {{- /* Render the pods. */ -}}
  {{- include "horovod.prepareWorkers" . -}}
  {{- include "horovod.prepareMaster" . -}}
  {{- include "horovod.prepareTest" . -}}
{{- end -}}
{{- end }}

{{/*
Completes the values, and reads what several steps need.
  effective       .Values, with a number in the place of each null that stands for one
  shared          resources.json: what hvdchart and the pods know of names, limits and devices, too
  hasAccess       whether Helm can read the cluster
  statefulSets    the StatefulSets of the namespace, by name
*/}}
{{- define "horovod.prepareValues" -}}
{{- $defaults := include "horovod.defaults" . | fromJson -}}
{{- include "horovod.addDefaults" (dict "into" .Values "defaults" $defaults) -}}
{{- /* Null stays in .Values, from which the hashes of a run are made. */ -}}
{{- $numbers := include "horovod.effective" . | fromJson -}}
{{- $effective := deepCopy .Values -}}
{{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
{{- $_ := set .facts "effective" $effective -}}
{{- $_ := set .facts "shared" (.Files.Get "files/hvd_pods/shared/resources.json" | fromJson) -}}
{{- $_ := set .facts "hasAccess" (lookup "v1" "ServiceAccount" .Release.Namespace "default" | empty | not) -}}
{{- $statefulSets := dict -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
  {{- $_ := set $statefulSets .metadata.name . -}}
{{- end -}}
{{- $_ := set .facts "statefulSets" $statefulSets -}}
{{- end }}

{{/*
  fullname        the prefix of all object names
  name            the label that tells two dependencies of one release apart
  serviceAccount  the master's ServiceAccount; empty when the master has no access to the API
  record          the ConfigMap in which the master records how the last run ended, and which master controls
                  the workers; the chart does not set its data
  kueue           Kueue's LocalQueue; empty without one
  hasTest         whether there is a pod of `helm test`
*/}}
{{- define "horovod.prepareNames" -}}
{{- $facts := .facts -}}
{{- /* As in charts that `helm create` makes, nameOverride is left out when the release's name contains
it. */ -}}
{{- $suffix := .Values.nameOverride -}}
{{- if and $suffix (contains $suffix .Release.Name) -}}
  {{- $suffix = "" -}}
{{- else if and (not $suffix) (ne .Chart.Name "horovod") -}}
  {{- $suffix = .Chart.Name -}}
{{- end -}}
{{- $fullname := .Values.fullnameOverride | default (list .Release.Name $suffix | compact | join "-") -}}
{{- $account := ternary (printf "%s-master" $fullname) "" .Values.serviceAccount.create -}}
{{- $_ := set $facts "fullname" $fullname -}}
{{- $_ := set $facts "name" (.Values.nameOverride | default .Chart.Name) -}}
{{- $_ := set $facts "serviceAccount" (.Values.serviceAccount.name | default $account) -}}
{{- $_ := set $facts "record" (printf "%s-run" $fullname) -}}
{{- /* With Volcano, queueName is a queue of Volcano. */ -}}
{{- $_ := set $facts "kueue" (ternary "" .Values.queueName (eq .Values.gang "Volcano")) -}}
{{- /* It would wait in the queue for workers that nobody has scaled up. */ -}}
{{- $_ := set $facts "hasTest" (and $facts.serviceAccount (not $facts.kueue)) -}}
{{- end }}

{{/*
The programs of the pods: the archive that `make generate` makes of files/hvd_pods.
  programs.configMap  the ConfigMap with the archive
  programs.command    what unpacks it, in the place of files/unpack.py, and then runs the Python whose
                      arguments follow
*/}}
{{- define "horovod.preparePrograms" -}}
{{- $hash := .Subcharts.programs.Files.Get "programs.tgz" | sha256sum -}}
{{- $programs := dict -}}
{{- /* Named after its content and immutable, so that a pod never sees the programs of another chart
version. */ -}}
{{- $_ := set $programs "configMap" (printf "%s-files-%s" .facts.fullname (trunc 8 $hash)) -}}
{{- /* Kubernetes turns $$ into $. */ -}}
{{- $unpack := .Files.Get "files/unpack.py" | replace "$" "$$" -}}
{{- $_ := set $programs "command" (list "python3" "-I" "-S" "-c" $unpack $hash) -}}
{{- $_ := set .facts "programs" $programs -}}
{{- end }}

{{/*
The keys with which the master and the agents in the workers know each other. Without access to the cluster,
each rendering would make other keys, so that the first master makes them if it may.
  keys.secrets    the Secret of the master and that of the workers
  keys.names      their names in the certificates
  keys.areOwn     whether the Secrets are the chart's own
  keys.masterMayMake  whether the first master may make the keys
  keys.data       the data of the chart's own Secrets: those in the cluster, or new ones where one is missing
*/}}
{{- define "horovod.prepareKeys" -}}
{{- $agent := .Values.agent -}}
{{- $fullname := .facts.fullname -}}
{{- /* The keys of each agent.generation have Secrets and names of their own. */ -}}
{{- $generation := int $agent.generation -}}
{{- $suffix := ternary "" (printf "-%d" $generation) (eq $generation 1) -}}
{{- $secrets := dict -}}
{{- $names := dict -}}
{{- range $of := list "master" "worker" -}}
  {{- $own := printf "%s-agent-%s%s" $fullname $of $suffix -}}
  {{- $_ := set $secrets $of (get $agent (printf "%sSecret" $of) | default $own) -}}
  {{- $_ := set $names $of
    (printf "%s-%d.%s.%s.horovod.internal" $of $generation $fullname $.Release.Namespace) -}}
{{- end -}}
{{- $areOwn := not $agent.masterSecret -}}
{{- $masterMayMake := and $areOwn (not (empty .facts.serviceAccount)) -}}
{{- $kept := dict -}}
{{- $isComplete := true -}}
{{- $hasEmpty := false -}}
{{- range $of, $name := ternary $secrets dict $areOwn -}}
  {{- $secret := lookup "v1" "Secret" $.Release.Namespace $name | default dict -}}
  {{- $_ := set $kept $of ($secret.data | default dict) -}}
  {{- $isComplete = and $isComplete $secret.data -}}
  {{- $hasEmpty = or $hasEmpty (and $secret (not $secret.data)) -}}
{{- end -}}
{{- $masterMakes := and $masterMayMake (or $hasEmpty (not .facts.hasAccess)) -}}
{{- $keys := dict -}}
{{- $_ := set $keys "secrets" $secrets -}}
{{- $_ := set $keys "names" $names -}}
{{- $_ := set $keys "areOwn" $areOwn -}}
{{- $_ := set $keys "masterMayMake" $masterMayMake -}}
{{- $_ := set $keys "data" $kept -}}
{{- if not (or $isComplete $masterMakes) -}}
  {{- range $of, $name := $names -}}
    {{- $_ := set $keys.data $of (include "horovod.newKey" (dict "of" $of "name" $name) | fromJson) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "keys" $keys -}}
{{- end }}

{{/*
A new key and its certificate, as the data of a Secret in JSON. One authority signs for masters and another
one for workers, so that a worker's key is useless for asking. Nothing keeps the authority's key.
Call with (dict "of" "master" "name" $nameInTheCertificate).
*/}}
{{- define "horovod.newKey" -}}
{{- $days := 3650 -}}
{{- $authority := genCAWithKey (printf "horovod-%s-authority" .of) $days (genPrivateKey "ecdsa") -}}
{{- $key := genPrivateKey "ecdsa" -}}
{{- $certificate := genSignedCertWithKey (printf "horovod-%s" .of) list (list .name) $days $authority $key -}}
{{- dict
  "tls.crt" (b64enc $certificate.Cert)
  "tls.key" (b64enc $certificate.Key)
  "ca.crt" (b64enc $authority.Cert) | toJson -}}
{{- end }}

{{/*
  hasPolicy       whether master and workers have a NetworkPolicy
  hasTensorboardPolicy  whether TensorBoard has one
  mesh.labels     the labels by which a service mesh knows whether a pod belongs to it, and how
  mesh.annotations  the annotations for the same
*/}}
{{- define "horovod.prepareNetwork" -}}
{{- /* By default there are NetworkPolicies, because MPI, Gloo, NCCL and TensorBoard have no authentication;
but none for the workers on their nodes' network, to which a NetworkPolicy does not apply. */ -}}
{{- $hasPolicies := ne (toString .Values.networkPolicy.enabled) "false" -}}
{{- $_ := set .facts "hasPolicy" (and $hasPolicies (not .Values.hostNetwork)) -}}
{{- $_ := set .facts "hasTensorboardPolicy" (and $hasPolicies .Values.tensorboard.enabled) -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- if eq .Values.serviceMesh "Disabled" -}}
  {{- $labels = dict "sidecar.istio.io/inject" "false" "istio.io/dataplane-mode" "none" -}}
  {{- $annotations = dict "linkerd.io/inject" "disabled" -}}
{{- else if eq .Values.serviceMesh "Ambient" -}}
  {{- $labels = dict "sidecar.istio.io/inject" "false" "istio.io/dataplane-mode" "ambient" -}}
{{- else if eq .Values.serviceMesh "Hold" -}}
  {{- /* A native sidecar starts before the init containers and ends with the pod. Meshes that cannot inject
  one hold the containers back until the proxy has started. */ -}}
  {{- $annotations = dict
    "sidecar.istio.io/nativeSidecar" "true"
    "config.beta.linkerd.io/proxy-enable-native-sidecar" "true"
    "proxy.istio.io/config" `{"holdApplicationUntilProxyStarts": true}`
    "config.linkerd.io/proxy-await" "enabled" -}}
{{- end -}}
{{- $mesh := dict -}}
{{- $_ := set $mesh "labels" $labels -}}
{{- $_ := set $mesh "annotations" $annotations -}}
{{- $_ := set .facts "mesh" $mesh -}}
{{- end }}

{{/*
The worker groups, each merged with `worker`. A group has every key of `worker` and its name, too.
  groups          the worker groups
  groups[].volumes  the release's volumes and its own
  groups[].volumeMounts  the same of volumeMounts
  groups[].objectName  the prefix of its names
  groups[].securityContext  the chart's, with the capabilities that the group adds
  groups[].grace  seconds to end
  groups[].maximum  the most workers that it may have, with spares
  ranks           the ranks of all groups
  workers         the workers that the ranks need
  spares          the workers that wait
  fewestWorkers   the workers without which the run does not continue
*/}}
{{- define "horovod.prepareGroups" -}}
{{- $facts := .facts -}}
{{- $defaults := (include "horovod.defaults" . | fromJson).worker
  | merge (dict "volumes" list "volumeMounts" list) -}}
{{- $numbers := (include "horovod.effective" . | fromJson).worker -}}
{{- $groups := list -}}
{{- $ranks := 0 -}}
{{- $workers := 0 -}}
{{- $spares := 0 -}}
{{- $fewest := 0 -}}
{{- range (.Values.workerGroups | default (list (dict "name" "worker"))) -}}
  {{- $group := deepCopy $.Values.worker -}}
  {{- $_ := set $group "volumes" $.Values.volumes -}}
  {{- $_ := set $group "volumeMounts" $.Values.volumeMounts -}}
  {{- include "horovod.mergeGroup" (dict "into" $group "from" .) -}}
  {{- include "horovod.addDefaults" (dict "into" $group "defaults" $defaults) -}}
  {{- /* spares: 0 means the same as no spares, so that the hash of the settings leaves out both. */ -}}
  {{- if not $group.spares -}}{{- $_ := unset $group "spares" -}}{{- end -}}
  {{- $effective := pick $group "spares" "terminationGracePeriodSeconds" -}}
  {{- include "horovod.addDefaults" (dict "into" $effective "defaults" $numbers) -}}
  {{- $context := deepCopy $.Values.securityContext -}}
  {{- with $group.capabilities -}}
    {{- $of := $context.capabilities | default dict -}}
    {{- $added := concat ($of.add | default list) . | uniq -}}
    {{- $_ := set $context "capabilities" (merge (dict "add" $added) $of) -}}
  {{- end -}}
  {{- $_ := set $group "securityContext" $context -}}
  {{- $_ := set $group "objectName" (printf "%s-%s" $facts.fullname $group.name) -}}
  {{- $_ := set $group "grace" (int $effective.terminationGracePeriodSeconds) -}}
  {{- $_ := set $group "maximum" (add $group.number $effective.spares | int) -}}
  {{- $groups = append $groups $group -}}
  {{- $ranks = add $ranks (mul $group.number $group.slots) -}}
  {{- $workers = add $workers $group.number -}}
  {{- $spares = add $spares $effective.spares -}}
  {{- /* An eviction does not prefer spares, so that a group without a minimum needs all of its pods. */ -}}
  {{- $fewest = add $fewest ($group.minimum | default $group.maximum) -}}
{{- end -}}
{{- $_ := set $facts "groups" $groups -}}
{{- $_ := set $facts "ranks" $ranks -}}
{{- $_ := set $facts "workers" $workers -}}
{{- $_ := set $facts "spares" $spares -}}
{{- $_ := set $facts "fewestWorkers" $fewest -}}
{{- end }}

{{/*
Merges a group's own values into a copy of the worker's, which it changes. A map merges key by key, and null,
{} or [] clears the worker's value. Entries of env, volumes and volumeMounts are added to those that are
there.
Call with (dict "into" $copyOfTheWorker "from" $valuesOfTheGroup).
*/}}
{{- define "horovod.mergeGroup" -}}
{{- $into := .into -}}
{{- $own := deepCopy .from -}}
{{- range $list := list "env" "volumes" "volumeMounts" -}}
  {{- with get $own $list -}}{{- $_ := set $own $list (concat (get $into $list) .) -}}{{- end -}}
{{- end -}}
{{- with $own.image -}}
  {{- $_ := set $into "image"
    (include "horovod.mergedImage" (dict "image" $into.image "own" .) | fromJson) -}}
{{- end -}}
{{- include "horovod.mergeInto" (dict "into" $into "from" $own) -}}
{{- end }}

{{/*
How the chart tunes Horovod in the workers.
  ranksChooseFusion   whether the ranks choose the size of Horovod's fusion buffer
  groups[].tuning  the values of `horovod` as variables, without those that the group's env sets
*/}}
{{- define "horovod.prepareTuning" -}}
{{- /* Ranks may choose a size where all of them choose the same one. Known here is what a rank cannot see:
whether all groups run over MPI and on CPUs, and have the same variables from env, a Secret and the image. A
rank sees its environment, and decides the size (hvd_pods/rank/fusion.py). */ -}}
{{- $sources := list -}}
{{- $hasDevices := false -}}
{{- range .facts.groups -}}
  {{- $own := include "horovod.envEntry" (dict "env" .env "name" "HOROVOD_FUSION_THRESHOLD") | fromJson -}}
  {{- $sources = append $sources (list (empty $own) .envFrom .image | toJson) -}}
  {{- $hasDevices = or $hasDevices .podSpec.resourceClaims .podSpec.runtimeClassName -}}
  {{- range $resource, $count := (.resources).limits -}}
    {{- $hasDevices = or $hasDevices (and (contains "/" $resource) (int $count)) -}}
  {{- end -}}
{{- end -}}
{{- $areAlike := eq (len (uniq $sources)) 1 -}}
{{- $isMpi := eq .Values.launch.mode "mpirun" -}}
{{- $_ := set .facts "ranksChooseFusion" (and $isMpi (not $hasDevices) $areAlike) -}}
{{- $horovod := .Values.horovod -}}
{{- range $group := .facts.groups -}}
  {{- $variables := dict -}}
  {{- /* Kubernetes expands $(OUTPUT_PATH), because it comes earlier in the list. */ -}}
  {{- if $horovod.timeline -}}
    {{- $_ := set $variables "HOROVOD_TIMELINE" "$(OUTPUT_PATH)/horovod-timeline.json" -}}
  {{- end -}}
  {{- if $horovod.autotune -}}
    {{- $_ := set $variables "HOROVOD_AUTOTUNE" "1" -}}
    {{- if include "horovod.envEntry" (dict "env" .env "name" "OUTPUT_PATH") | fromJson -}}
      {{- $_ := set $variables "HOROVOD_AUTOTUNE_LOG" "$(OUTPUT_PATH)/horovod-autotune.csv" -}}
    {{- end -}}
  {{- end -}}
  {{- /* 0 is a valid threshold: it disables fusion. */ -}}
  {{- if not (kindIs "invalid" $horovod.fusionThresholdMiB) -}}
    {{- $bytes := mul $horovod.fusionThresholdMiB 1048576 -}}
    {{- $_ := set $variables "HOROVOD_FUSION_THRESHOLD" (toString $bytes) -}}
  {{- end -}}
  {{- with $horovod.cycleTimeMs -}}{{- $_ := set $variables "HOROVOD_CYCLE_TIME" (toString .) -}}{{- end -}}
  {{- $added := list -}}
  {{- range $name, $value := $variables -}}
    {{- if not (include "horovod.envEntry" (dict "env" $group.env "name" $name) | fromJson) -}}
      {{- $added = append $added (dict "name" $name "value" $value) -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $group "tuning" $added -}}
{{- end -}}
{{- end }}

{{/*
The gang: all pods of the run, which start together or not at all.
  gangSize        the pods of the gang: the master and all workers. The run needs each; spares count, or a
                  scheduler could leave out the master
  gangApi         the API of its PodGroup; empty where the cluster has none of Kubernetes' own
  gangSpec        the specification of the PodGroup
  podGroup        the name of the PodGroup
  schedulerName   the scheduler of the pods; empty for the cluster's default
*/}}
{{- define "horovod.prepareGang" -}}
{{- $gang := .Values.gang -}}
{{- $size := add 1 .facts.workers .facts.spares -}}
{{- $api := ternary "scheduling.volcano.sh/v1beta1" "" (eq $gang "Volcano") -}}
{{- $spec := dict -}}
{{- $name := .facts.fullname -}}
{{- if eq $gang "Volcano" -}}
  {{- $_ := set $spec "minMember" $size -}}
  {{- with .Values.queueName -}}{{- $_ := set $spec "queue" . -}}{{- end -}}
{{- else if eq $gang "Kubernetes" -}}
  {{- /* The newest one that the cluster has wins. */ -}}
  {{- range list "scheduling.k8s.io/v1alpha2" "scheduling.k8s.io/v1alpha3" "scheduling.k8s.io/v1beta1" -}}
    {{- if $.Capabilities.APIVersions.Has (printf "%s/PodGroup" .) -}}{{- $api = . -}}{{- end -}}
  {{- end -}}
  {{- $_ := set $spec "schedulingPolicy" (dict "gang" (dict "minCount" $size)) -}}
  {{- with .Values.gangTopologyKey -}}
    {{- $_ := set $spec "schedulingConstraints" (dict "topology" (list (dict "key" .))) -}}
  {{- end -}}
  {{- if eq $api "scheduling.k8s.io/v1beta1" -}}
    {{- /* A run without its last worker only holds its nodes, unless a spare or a minimum lets it go
    on. */ -}}
    {{- $goesOn := gt (int .facts.spares) 0 -}}
    {{- range .facts.groups -}}{{- $goesOn = or $goesOn (gt (int .minimum) 0) -}}{{- end -}}
    {{- $_ := set $spec "disruptionMode" (dict (ternary "single" "all" $goesOn) dict) -}}
  {{- end -}}
{{- end -}}
{{- with .Values.priorityClassName -}}{{- $_ := set $spec "priorityClassName" . -}}{{- end -}}
{{- if eq $gang "Kubernetes" -}}
  {{- /* Kubernetes lets nobody change the specification of a PodGroup: another one is another object. */ -}}
  {{- $name = printf "%s-%s" $name (toJson $spec | sha256sum | trunc 8) -}}
{{- end -}}
{{- $own := ternary "volcano" "" (eq $gang "Volcano") -}}
{{- $_ := set .facts "gangSize" $size -}}
{{- $_ := set .facts "gangApi" $api -}}
{{- $_ := set .facts "gangSpec" $spec -}}
{{- $_ := set .facts "podGroup" $name -}}
{{- $_ := set .facts "schedulerName" (.Values.schedulerName | default $own) -}}
{{- end }}

{{/*
The user's code: files of the release that the master hands to the workers (hvd_pods/master/user_code.py).
  code.files      the files by name
  code.size       their characters
  code.version    a hash of the code; like the next ones empty without code
  code.sha256     the hash of what `sha256sum` prints of the ConfigMap's keys: the master's pod has it in its
                  template, and runs no other code (hvd_pods/pod/code_archive.py)
  code.configMap  the ConfigMap with the code
  code.data, code.binaryData  its content
*/}}
{{- define "horovod.prepareCode" -}}
{{- $archive := .Values.code.archive -}}
{{- $text := include "horovod.flattenFiles" (dict "files" .Values.code.files "prefix" "") -}}
{{- $files := fromJson $text -}}
{{- $size := len $archive -}}
{{- range $files -}}{{- $size = add $size (len .) -}}{{- end -}}
{{- $code := dict -}}
{{- $_ := set .facts "code" $code -}}
{{- $_ := set $code "files" $files -}}
{{- $_ := set $code "size" (int $size) -}}
{{- $_ := set $code "version" "" -}}
{{- $_ := set $code "sha256" "" -}}
{{- $_ := set $code "configMap" "" -}}
{{- $_ := set $code "data" dict -}}
{{- $_ := set $code "binaryData" dict -}}
{{- if or .Values.code.files $archive -}}
  {{- $version := printf "%s %s" $text $archive | sha256sum | trunc 10 -}}
  {{- $keys := deepCopy $files -}}
  {{- with $archive -}}{{- $_ := set $keys "archive.tgz" (nospace . | b64dec) -}}{{- end -}}
  {{- $lines := "" -}}
  {{- range keys $keys | sortAlpha -}}
    {{- $lines = printf "%s%s  %s\n" $lines (get $keys . | sha256sum) . -}}
  {{- end -}}
  {{- $_ := set $code "version" $version -}}
  {{- $_ := set $code "sha256" (sha256sum $lines) -}}
  {{- $_ := set $code "configMap" (printf "%s-code-%s" .facts.fullname $version) -}}
  {{- /* A text with characters that YAML cannot have, and that JSON does not escape, is binary data. */ -}}
  {{- range $name, $content := $files -}}
    {{- if regexMatch "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]" $content -}}
      {{- $_ := set $code.binaryData $name (b64enc $content) -}}
    {{- else -}}
      {{- $_ := set $code.data $name $content -}}
    {{- end -}}
  {{- end -}}
  {{- with $archive -}}{{- $_ := set $code.binaryData "archive.tgz" (nospace .) -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
The files by name, as JSON. An unquoted `--set-file code.files.train\.py=train.py` loses its backslash in the
shell, and Helm then makes {train: {py: ...}} of it.
Call with (dict "files" $map "prefix" "").
*/}}
{{- define "horovod.flattenFiles" -}}
{{- $prefix := .prefix -}}
{{- $files := dict -}}
{{- range $name, $content := .files -}}
  {{- if kindIs "map" $content -}}
    {{- $nested := include "horovod.flattenFiles"
      (dict "files" $content "prefix" (printf "%s%s." $prefix $name)) -}}
    {{- $files = merge $files ($nested | fromJson) -}}
  {{- else -}}
    {{- $_ := set $files (printf "%s%s" $prefix $name) (toString $content) -}}
  {{- end -}}
{{- end -}}
{{ toJson $files }}
{{- end }}

{{/*
  command         the training command
  resultsPath     what results.command stores at the end
  logDir          what TensorBoard reads
*/}}
{{- define "horovod.prepareScript" -}}
{{- /* A single Python file is the command itself. */ -}}
{{- $files := keys .facts.code.files -}}
{{- $command := .Values.master.args -}}
{{- $isOneScript := and (eq (len $files) 1) (hasSuffix ".py" (first $files)) (not .Values.code.archive) -}}
{{- if and $isOneScript (not $command) (ne .Values.launch.mode "custom") -}}
  {{- $command = list "python3" (first $files) -}}
{{- end -}}
{{- $entry := include "horovod.envEntry" (dict "env" .Values.worker.env "name" "OUTPUT_PATH") | fromJson -}}
{{- $output := $entry.value | default "" -}}
{{- $_ := set .facts "command" $command -}}
{{- $_ := set .facts "resultsPath" (.Values.results.path | default $output) -}}
{{- $_ := set .facts "logDir" (.Values.tensorboard.logDir | default $output) -}}
{{- end }}

{{/*
Identifies the run of these values. docs/adr/0010 has the rules of this step and the next three.
  id              a hash of the values that identify the run
  settingsHash    a hash of all settings of the run
*/}}
{{- define "horovod.prepareRun" -}}
{{- $id := include "horovod.hashedValues" (dict "root" . "hash" "identity") | sha256sum | trunc 10 -}}
{{- $settings := include "horovod.hashedValues" (dict "root" . "hash" "settings") | sha256sum | trunc 10 -}}
{{- $_ := set .facts "id" $id -}}
{{- $_ := set .facts "settingsHash" $settings -}}
{{- end }}

{{/*
The values in a hash of the run, as JSON: identity has the values that decide what is trained, and settings
also has the values that decide how it starts. values.source.yaml declares the hash of each key; the merged
groups replace worker.
Call with (dict "root" $ "hash" "identity").
*/}}
{{- define "horovod.hashedValues" -}}
{{- $keys := get (include "horovod.hashes" . | fromJson) .hash -}}
{{- $groups := list -}}
{{- range .root.facts.groups -}}
  {{- $group := include "horovod.pickHashed" (dict "from" . "keys" $keys.workerGroups) | fromJson -}}
  {{- $groups = append $groups $group -}}
{{- end -}}
{{- $ofRun := dict "from" .root.Values "keys" (omit $keys "workerGroups") -}}
{{- $hashed := include "horovod.pickHashed" $ofRun | fromJson -}}
{{- $_ := set $hashed "workerGroups" $groups -}}
{{- toJson $hashed -}}
{{- end }}

{{/*
The values of some keys, as JSON, without those that are null or equal the content of the key in `keys`: a key
that a newer chart adds changes nothing. What the user writes below a key counts as it is, with what is empty
or false.
Call with (dict "from" $values "keys" $keys).
*/}}
{{- define "horovod.pickHashed" -}}
{{- $picked := dict -}}
{{- range $key, $none := .keys -}}
  {{- $value := index $.from $key -}}
  {{- if and (kindIs "map" $none) $none -}}
    {{- $below := dict "from" ($value | default dict) "keys" $none -}}
    {{- $value = include "horovod.pickHashed" $below | fromJson -}}
    {{- $none = dict -}}
  {{- end -}}
  {{- if not (or (kindIs "invalid" $value) (eq (toJson $value) (toJson $none))) -}}
    {{- $_ := set $picked $key $value -}}
  {{- end -}}
{{- end -}}
{{- toJson $picked -}}
{{- end }}

{{/*
Finds the Job. Without access to the cluster, what this and the next two steps find is empty.
  job             the newest Job of the run that has finished or has these settings, which an upgrade keeps
*/}}
{{- define "horovod.findJob" -}}
{{- $facts := .facts -}}
{{- $own := include "horovod.releaseLabels" . | fromYaml -}}
{{- $_ := set $own "hvdchart/run" .facts.id -}}
{{- $job := dict -}}
{{- range (lookup "batch/v1" "Job" .Release.Namespace "").items -}}
  {{- $hasSettings := eq (dig "metadata" "labels" "hvdchart/settings-hash" "" .) $facts.settingsHash -}}
  {{- $isKept := or (eq (include "horovod.jobOutcome" .) "Finished") $hasSettings -}}
  {{- $isOwn := and (not .metadata.deletionTimestamp)
    (include "horovod.hasLabels" (dict "of" . "labels" $own)) -}}
  {{- $isNewest := gt .metadata.creationTimestamp (dig "metadata" "creationTimestamp" "" $job) -}}
  {{- if and $isOwn $isKept $isNewest -}}{{- $job = . -}}{{- end -}}
{{- end -}}
{{- $_ := set .facts "job" $job -}}
{{- end }}

{{/* Finished or Failed when a Job has ended, else empty. Call with the Job. */}}
{{- define "horovod.jobOutcome" -}}
{{- range (dig "status" "conditions" list .) -}}
  {{- if eq .status "True" -}}{{- get (dict "Complete" "Finished" "Failed" "Failed") .type -}}{{- end -}}
{{- end -}}
{{- end }}

{{/*
"true" when an object has all of the labels, else empty.
Call with (dict "of" $object "labels" $labels).
*/}}
{{- define "horovod.hasLabels" -}}
{{- $has := .of.metadata.labels | default dict -}}
{{- $missing := false -}}
{{- range $key, $value := .labels -}}
  {{- if ne (get $has $key) $value -}}
    {{- $missing = true -}}
  {{- end -}}
{{- end -}}
{{- if not $missing -}}true{{- end -}}
{{- end }}

{{/*
Reads how the run ended: from its Job, or from the record after the Job has been removed.
  outcome         how the run ended: Finished, Failed, or empty while it has not ended
  recordedEnd     what the record says of this end; empty while it says nothing of it
  jobIsGone       whether the run has ended and its Job has been removed, so that no Job is rendered
  workersAreDone  whether it has ended and has no workers any more
*/}}
{{- define "horovod.readEnd" -}}
{{- $config := lookup "v1" "ConfigMap" .Release.Namespace .facts.record | default dict -}}
{{- $record := $config.data | default dict -}}
{{- if not (get $record "run") -}}
  {{- $record = dig "metadata" "annotations" "hvdchart/ended" "{}" $config | fromJson -}}
{{- end -}}
{{- $hasSettings := eq (get $record "settingsHash") .facts.settingsHash -}}
{{- $failed := and (eq (get $record "state") "Failed") $hasSettings -}}
{{- $isOver := or $failed (eq (get $record "state") "Finished") -}}
{{- $recorded := ternary $record dict (and $isOver (eq (get $record "run") .facts.id)) -}}
{{- $outcome := get $recorded "state" -}}
{{- with .facts.job -}}{{- $outcome = include "horovod.jobOutcome" . -}}{{- end -}}
{{- $isRemoval := include "horovod.removesWorkers" (dict "outcome" $outcome "cleanup" .Values.cleanup) -}}
{{- $_ := set .facts "outcome" $outcome -}}
{{- $_ := set .facts "recordedEnd" $recorded -}}
{{- $_ := set .facts "jobIsGone" (and (not .facts.job) (not (empty $recorded))) -}}
{{- $_ := set .facts "workersAreDone" (not (empty $isRemoval)) -}}
{{- end }}

{{/*
"true" where a run that has ended leaves no workers, else empty. The master scales them to zero at the end by
the same rule (scale_down of hvd_pods/rules/run_end.py). An upgrade after the end needs the rule again: it
must not scale them up, and `cleanup` may be another one than at the end, such as Always after a failed run
has been looked at.
Call with (dict "outcome" "Failed" "cleanup" "Always").
*/}}
{{- define "horovod.removesWorkers" -}}
{{- $outcomes := get (dict "OnSuccess" (list "Finished") "Always" (list "Finished" "Failed")) .cleanup
  | default list -}}
{{- if has .outcome $outcomes -}}true{{- end -}}
{{- end }}

{{/*
  sets            the StatefulSets that the upgrade keeps with the Job, or after it has been removed, by name
*/}}
{{- define "horovod.findSets" -}}
{{- $sets := dict -}}
{{- if or .facts.job .facts.recordedEnd -}}
  {{- $own := include "horovod.releaseLabels" . | fromYaml
    | merge (include "horovod.runLabels" . | fromYaml) -}}
  {{- range $name, $set := .facts.statefulSets -}}
    {{- if include "horovod.hasLabels" (dict "of" $set "labels" $own) -}}
      {{- $_ := set $sets $name $set -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "sets" $sets -}}
{{- end }}

{{/*
  keptPrograms    the ConfigMaps of other programs that kept pods mount: those of the chart version that
                  created them
*/}}
{{- define "horovod.findKeptPrograms" -}}
{{- $mounted := list -}}
{{- range append (values .facts.sets) .facts.job -}}
  {{- range dig "spec" "template" "spec" "volumes" list . -}}
    {{- with .configMap -}}{{- $mounted = append $mounted .name -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $kept := list -}}
{{- range without ($mounted | uniq | sortAlpha) .facts.programs.configMap -}}
  {{- if hasPrefix (printf "%s-files-" $.facts.fullname) . -}}
    {{- with lookup "v1" "ConfigMap" $.Release.Namespace . -}}{{- $kept = append $kept . -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "keptPrograms" $kept -}}
{{- end }}

{{/*
Finds the nodes that have the data of each group: the keys of a ConfigMap (hvd_pods/cluster/staged.py writes
it). Its name is a hash of the source and the directory, so that later runs and other releases of the
namespace share it.
  stagingKey      a hash of the source of the data
  groups[].staged  the ConfigMap of the nodes that have the group's data; empty without one
  groups[].stagedNodes  these nodes
  nodeLists       these ConfigMaps of all groups
  nodesWithData   these nodes of all groups
*/}}
{{- define "horovod.findNodes" -}}
{{- $staging := .Values.staging -}}
{{- $key := pick $staging "image" "command" "env" | toJson | sha256sum | trunc 16 -}}
{{- $_ := set .facts "stagingKey" $key -}}
{{- $path := trimSuffix "/" $staging.path -}}
{{- $lists := list -}}
{{- $nodes := list -}}
{{- range $group := .facts.groups -}}
  {{- $staged := "" -}}
  {{- if and $staging.command (ne $staging.nodes "Any") -}}
    {{- $mount := include "horovod.mountOf" (dict "mounts" .volumeMounts "path" $path) | fromJson -}}
    {{- $below := trimPrefix (trimSuffix "/" $mount.mountPath) $path -}}
    {{- range .volumes -}}
      {{- if and (eq .name $mount.name) .hostPath (not $mount.subPathExpr) -}}
        {{- $directory := printf "%s/%s/%s" .hostPath.path ($mount.subPath | default "") $below | clean -}}
        {{- $staged = printf "%s %s" $directory $key | sha256sum | trunc 10 | printf "horovod-staged-%s" -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $list := dict -}}
  {{- if $staged -}}
    {{- $list = lookup "v1" "ConfigMap" $.Release.Namespace $staged | default dict -}}
  {{- end -}}
  {{- $_ := set $group "staged" $staged -}}
  {{- $lists = append $lists $staged | uniq -}}
  {{- $_ := set $group "stagedNodes" (keys ($list.data | default dict) | sortAlpha) -}}
  {{- $nodes = concat $nodes $group.stagedNodes | uniq -}}
{{- end -}}
{{- $_ := set .facts "nodeLists" (without $lists "") -}}
{{- $_ := set .facts "nodesWithData" $nodes -}}
{{- end }}

{{/*
  groups[].statefulSet  the name of the group's StatefulSet of this run
  groups[].replicas  its number of workers
  groups[].labels, groups[].annotations  of its pods
  groups[].pod    the pod spec
  groups[].revision  a hash of the pod template
*/}}
{{- define "horovod.prepareWorkers" -}}
{{- $facts := .facts -}}
{{- range $group := .facts.groups -}}
  {{- /* A master in a queue cannot replace the pods of the run before, so that each run has StatefulSets of
  its own. */ -}}
  {{- $ofRun := printf "%s-%s" .objectName (trunc 8 $facts.settingsHash) -}}
  {{- $name := ternary .objectName $ofRun (empty $facts.kueue) -}}
  {{- /* Workers keep the number that they were scaled to; 0 is that of a suspended run. Nobody ends the
  workers of a run that has ended, so that an upgrade adds none, even where it changes the StatefulSet or
  finds none. */ -}}
  {{- $replicas := dig $name "spec" "replicas" 0 $facts.sets | default .maximum -}}
  {{- if or $.Values.master.suspend $facts.workersAreDone -}}
    {{- $replicas = 0 -}}
  {{- else if $facts.outcome -}}
    {{- $replicas = dig $name "spec" "replicas" 0 $facts.statefulSets -}}
  {{- end -}}
  {{- $metadata := include "horovod.podMetadata" (dict "root" $ "of" $group) | fromJson -}}
  {{- $placed := include "horovod.workerAffinity" (dict "root" $ "group" $group "nodes" .stagedNodes) -}}
  {{- $anywhere := include "horovod.workerAffinity" (dict "root" $ "group" $group "nodes" list) -}}
  {{- $pod := dict "root" $ "group" $group "affinity" (fromJson $placed) -}}
  {{- $hashed := dict "root" $ "group" $group "affinity" (fromJson $anywhere) -}}
  {{- /* The revision names the version of the keys, and tells the master which pods are current. The nodes
  are no part of it: running workers are on such nodes already. A StatefulSet that the upgrade keeps keeps
  its own. */ -}}
  {{- $content := list $metadata.labels $metadata.annotations | toJson
    | printf "%s %s" (include "horovod.workerPodSpec" $hashed) -}}
  {{- $revision := sha256sum $content | trunc 10 -}}
  {{- with get $facts.sets $name -}}
    {{- $revision = get .spec.template.metadata.labels "hvdchart/revision" -}}
  {{- end -}}
  {{- $_ := set $group "statefulSet" $name -}}
  {{- $_ := set $group "replicas" (int $replicas) -}}
  {{- $_ := set $group "labels" $metadata.labels -}}
  {{- $_ := set $group "annotations" $metadata.annotations -}}
  {{- $_ := set $group "pod" (include "horovod.workerPodSpec" $pod) -}}
  {{- $_ := set $group "revision" $revision -}}
{{- end -}}
{{- end }}

{{/*
A worker's affinity as JSON: its group's. Where that has no pod anti-affinity, `spread` adds the one that
places each worker of the release on a node of its own. The nodes that have the staged data are added to the
node affinity. They are selected by their names, from which the label kubernetes.io/hostname may differ.
Call with (dict "root" $ "group" $group "nodes" $list).
*/}}
{{- define "horovod.workerAffinity" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $affinity := deepCopy .group.affinity -}}
{{- if and (ne .group.spread "None") (not (hasKey $affinity "podAntiAffinity")) -}}
  {{- $labels := include "horovod.selectorLabels" (dict "root" .root "component" "worker") | fromYaml -}}
  {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
  {{- $weighted := dict "weight" 100 "podAffinityTerm" $term -}}
  {{- $spread := ternary (dict $required (list $term)) (dict $preferred (list $weighted))
    (eq .group.spread "Required") -}}
  {{- $_ := set $affinity "podAntiAffinity" $spread -}}
{{- end -}}
{{- if .nodes -}}
  {{- $own := $affinity.nodeAffinity | default dict -}}
  {{- $terms := list -}}
  {{- $preferences := get $own $preferred | default list -}}
  {{- range $node := .nodes -}}
    {{- /* A field selector takes one name. */ -}}
    {{- $fields := list (dict "key" "metadata.name" "operator" "In" "values" (list $node)) -}}
    {{- /* Terms are alternatives, so that each term of the group is repeated with each node. */ -}}
    {{- range dig $required "nodeSelectorTerms" (list dict) $own -}}
      {{- $term := deepCopy . -}}
      {{- $_ := set $term "matchFields" (concat (.matchFields | default list) $fields) -}}
      {{- $terms = append $terms $term -}}
    {{- end -}}
    {{- $preferences = append $preferences (dict "weight" 100 "preference" (dict "matchFields" $fields)) -}}
  {{- end -}}
  {{- if eq .root.Values.staging.nodes "Required" -}}
    {{- $_ := set $own $required (dict "nodeSelectorTerms" $terms) -}}
  {{- else -}}
    {{- $_ := set $own $preferred $preferences -}}
  {{- end -}}
  {{- $_ := set $affinity "nodeAffinity" $own -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end }}

{{/*
The labels and annotations of the pods of a group or of the master, as JSON: its own, those of the release's
pods, and those that schedulers, service meshes and queues read. Only the queue's override what the user has
set.
Call with (dict "root" $ "of" $group).
*/}}
{{- define "horovod.podMetadata" -}}
{{- $facts := .root.facts -}}
{{- $values := .root.Values -}}
{{- $gang := dict -}}
{{- if eq $values.gang "Volcano" -}}
  {{- $gang = dict "scheduling.k8s.io/group-name" $facts.podGroup -}}
{{- end -}}
{{- $queueLabels := dict -}}
{{- $queueAnnotations := dict -}}
{{- if $facts.kueue -}}
  {{- /* Kueue takes the pods for a group of plain pods. It must not take the StatefulSets and the Job for
  jobs of their own, so that only the pods have the queue's label. Its Workload has the name of the
  group. */ -}}
  {{- $queueLabels = dict
    "kueue.x-k8s.io/queue-name" $facts.kueue
    "kueue.x-k8s.io/managed" "true"
    "kueue.x-k8s.io/pod-group-name" (printf "%s-%s" $facts.fullname $facts.settingsHash) -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/pod-group-total-count" (toString $facts.gangSize) -}}
  {{- /* Kueue shows the master and each worker group by these names, with their resources. */ -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/role-hash" (.of.name | default "master") -}}
  {{- if .of.name -}}
    {{- /* Kueue gives the nodes of a topology to the workers of a group in the order of this label, which the
    StatefulSet sets: workers of consecutive ranks are neighbours. The master's pod has no such label. */ -}}
    {{- $index := "apps.kubernetes.io/pod-index" -}}
    {{- $_ := set $queueAnnotations "kueue.x-k8s.io/pod-group-pod-index-label" $index -}}
  {{- end -}}
  {{- /* The run is over as soon as no pod is active. Otherwise, each pod would have to succeed, as workers
  never do. */ -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/retriable-in-group" "false" -}}
  {{- /* Kueue then leaves its finalizer out, which would keep the StatefulSet from replacing a worker under
  its name. */ -}}
  {{- $_ := set $queueAnnotations "kueue.x-k8s.io/pod-suspending-parent" "horovod" -}}
{{- end -}}
{{- $mesh := $facts.mesh -}}
{{- $labels := list $mesh.labels $values.podLabels .of.podLabels $queueLabels -}}
{{- $ofUser := list $values.podAnnotations .of.podAnnotations -}}
{{- $annotations := concat (list $gang $mesh.annotations) $ofUser (list $queueAnnotations) -}}
{{- dict
  "labels" (include "horovod.layered" $labels | fromJson)
  "annotations" (include "horovod.layered" $annotations | fromJson) | toJson -}}
{{- end }}

{{/*
  masterPod       the template of the master's pod
  jobName         the name of the run's Job
*/}}
{{- define "horovod.prepareMaster" -}}
{{- $facts := .facts -}}
{{- /* A new name of a Job has a hash of the pod template, because Kubernetes allows no change of a Job's
pods. Without a ServiceAccount no record keeps another Job from repeating the run, so that the hash is that of
the settings only. */ -}}
{{- $pod := include "horovod.masterPod" . -}}
{{- $content := ternary $pod $facts.settingsHash (ne $facts.serviceAccount "") -}}
{{- $name := printf "%s-master-%s" $facts.fullname (sha256sum $content | trunc 8) -}}
{{- $_ := set $facts "masterPod" $pod -}}
{{- $_ := set $facts "jobName" (dig "metadata" "name" $name $facts.job) -}}
{{- end }}

{{/*
  testPod         the pod of `helm test`: the template of the master's pod with the program of the test, and
                  without what stores results
*/}}
{{- define "horovod.prepareTest" -}}
{{- $facts := .facts -}}
{{- $pod := fromYaml $facts.masterPod -}}
{{- /* Only the kept master of these settings knows the kept workers, and has their keys. */ -}}
{{- if eq (dig "metadata" "labels" "hvdchart/settings-hash" "" $facts.job) $facts.settingsHash -}}
  {{- $pod = include "horovod.keptTemplate" $facts.job | fromYaml -}}
{{- end -}}
{{- $master := first $pod.spec.containers -}}
{{- /* What unpacks the programs stays; the arguments of the master's own program follow. */ -}}
{{- $unpack := slice $master.command 0 (len $facts.programs.command) -}}
{{- $program := list "-I" "/horovod/bin/hvd_pods/master/selftest.py" -}}
{{- $_ := set $master "command" (concat $unpack $program) -}}
{{- $env := append $master.env (dict "name" "HVD_TESTED_JOB" "value" $facts.jobName) -}}
{{- if $facts.hasPolicy -}}
  {{- $env = append $env (dict "name" "HVD_POLICY" "value" "Enabled") -}}
{{- end -}}
{{- $_ := set $master "env" $env -}}
{{- $_ := unset $master "ports" -}}
{{- $init := list -}}
{{- range $pod.spec.initContainers -}}
  {{- if ne .name "results" -}}{{- $init = append $init . -}}{{- end -}}
{{- end -}}
{{- $_ := set $pod.spec "initContainers" $init -}}
{{- $_ := set $facts "testPod" $pod -}}
{{- end }}
