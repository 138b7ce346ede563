{{/* A worker's pod. */}}

{{/* The pod spec of a worker. Call with (dict "root" $ "group" $group). */}}
{{- define "horovod.workerPodBody" -}}
{{- $root := .root -}}
{{- $group := .group -}}
automountServiceAccountToken: {{ $group.automountServiceAccountToken }}
{{- with include "horovod.workerServiceAccount" . }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- include "horovod.placement" (dict "root" $root "of" $group "component" "worker") }}
{{- if $root.Values.hostPID }}
hostPID: true
{{- end }}
{{- if $root.Values.hostNetwork }}
# The master does not use it: on a node that it shares with a worker, mpirun would treat the worker as the local host.
hostNetwork: true
# On the node's network a pod would otherwise use the node's DNS, which does not resolve Services.
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{ include "horovod.podSettings" $root }}
{{- with include "horovod.ownPodFields" $group }}
{{- . | trim | nindent 0 }}
{{- end }}
{{- with include "horovod.scheduling" $group }}
{{ . }}
{{- end }}
{{- $own := include "horovod.ownContainers" (dict "root" $root "containers" $group.initContainers) }}
{{- with print $own (include "horovod.stagingContainer" .) }}
initContainers:
  {{- . | trim | nindent 2 }}
{{- end }}
containers:
  - name: worker
    {{- include "horovod.image" (dict "root" $root "image" $group.image) | nindent 4 }}
    command:
      {{- $arguments := list "-I" "-S" "/horovod/bin/hvd_pods/worker/main.py" }}
      {{- include "horovod.programCommand" (dict "root" $root "arguments" $arguments) | nindent 6 }}
    ports:
      - {name: agent, containerPort: {{ int $root.Values.agent.port }}}
      {{- if $root.Values.metrics.enabled }}
      - {name: metrics, containerPort: {{ include "horovod.metricsPort" $root }}}
      {{- end }}
    env:
      {{- $variables := include "horovod.workerVariables" . | fromYamlArray }}
      {{- $of := printf "worker.env of group %q" $group.name }}
      {{- include "horovod.env" (dict "entries" (concat $variables $group.env) "of" $of) | nindent 6 }}
    {{- with include "horovod.ownContainerFields" $group }}
    {{- . | trim | nindent 4 }}
    {{- end }}
    startupProbe:
      tcpSocket: {port: agent}
      periodSeconds: 1
      failureThreshold: 300
    {{- with $group.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "horovod.workerSecurityContext" . | nindent 6 }}
    volumeMounts:
      {{- $mounts := include "horovod.workerMounts" $root | fromYamlArray }}
      {{- include "horovod.unique" (dict "items" (concat $mounts $group.volumeMounts) "key" "mountPath") | nindent 6 }}
  {{- with include "horovod.ownContainers" (dict "root" $root "containers" $group.extraContainers) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "horovod.workerVolumes" $root | fromYamlArray }}
  {{- include "horovod.unique" (dict "items" (concat $volumes $group.volumes) "key" "name") | nindent 2 }}
{{- end }}

{{- define "horovod.workerMounts" -}}
{{ include "horovod.commonMounts" . }}
- {name: shm, mountPath: /dev/shm}
{{- end }}

{{- define "horovod.workerVolumes" -}}
{{ include "horovod.commonVolumes" . }}
{{ include "horovod.keysVolume" (dict "root" . "of" "worker" "peer" "master") }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.shm.sizeLimit | quote }}}
{{- end }}

{{/*
The variables that the chart sets in a worker; worker.env overrides them. Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.workerVariables" -}}
{{ include "horovod.userVariables" . }}
- {name: HVD_SLOTS, value: {{ .group.slots | int | quote }}}
{{- $hosts := 0 }}
{{- range .root.horovod.groups }}{{- $hosts = add $hosts .number }}{{- end }}
- {name: HVD_HOSTS, value: {{ $hosts | quote }}}
- {name: HVD_POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: HVD_AGENT_PORT, value: {{ .root.Values.agent.port | int | quote }}}
- {name: HVD_MASTER_NAME, value: {{ include "horovod.certifiedName" (dict "root" .root "of" "master") | quote }}}
- {name: HVD_REVISION, valueFrom: {fieldRef: {fieldPath: "metadata.labels['horovod/revision']"}}}
# Turn off Intel MPI's own binding, because hvd_pods/rank/start.py binds the ranks.
- {name: I_MPI_PIN, value: "0"}
# Not all container runtimes let processes of a pod read each other's memory, as MPICH and UCX would.
- {name: MPIR_CVAR_CH4_CMA_ENABLE, value: "0"}
- {name: UCX_POSIX_USE_PROC_LINK, value: "n"}
- {name: HVD_GRACE, value: {{ include "horovod.gracePeriod" .group | quote }}}
{{- /* Horovod names a rank after one to four periods, a minute here: it finds some tensors late only after two. */}}
{{- $timeout := include "horovod.stallTimeout" .root | int }}
{{- $period := ternary (max 1 (min 15 (div $timeout 2))) 15 (gt $timeout 0) }}
- {name: HOROVOD_STALL_CHECK_TIME_SECONDS, value: {{ $period | quote }}}
{{- if include "horovod.once" (dict "root" .root "name" "horovod.fusesByRanks") }}
- {name: HVD_FUSION_BY_RANKS, value: "1"}
{{- end }}
{{- if not (kindIs "invalid" .root.Values.launch.preload) }}
- {name: HVD_PRELOAD, value: {{ join " " .root.Values.launch.preload | quote }}}
{{- end }}
{{- with .root.Values.launch.framework }}
- {name: HVD_FRAMEWORK, value: {{ . }}}
{{- end }}
{{- with include "horovod.workerMetricsEnv" .root }}
{{ . }}
{{- end }}
{{- with include "horovod.once" (dict "root" .root "name" "horovod.networkVariables") }}
{{ . }}
{{- end }}
{{- end }}

{{/*
The GPUs of a group as JSON: their number, and the key in resources.limits; call with
(dict "root" $ "group" $group). A limit of 0 is no GPU.
*/}}
{{- define "horovod.gpus" -}}
{{- $pattern := printf "^(%s)$" (.root.Files.Get "files/hvd_pods/common/resources.json" | fromJson).gpus -}}
{{- $gpus := dict "number" 0 "key" "" -}}
{{- range $key, $count := (.group.resources).limits -}}
{{- if and (regexMatch $pattern $key) (int $count) -}}
{{- $gpus = dict "number" (add $gpus.number (int $count)) "key" $key -}}
{{- end -}}
{{- end -}}
{{ $gpus | toJson }}
{{- end }}

{{/*
Whether ranks choose the size of Horovod's fusion buffer (hvd_pods/common/fusion.py): over MPI, on CPUs, where no value
decides it. All groups must agree: what an image, a Secret or a ConfigMap sets is not seen here, nor which devices a
claim or a runtime class brings. Empty or "true".
*/}}
{{- define "horovod.fusesByRanks" -}}
{{- $horovod := .Values.horovod -}}
{{- $decided := or $horovod.autotune (not (kindIs "invalid" $horovod.fusionThresholdMiB)) (ne .Values.launch.mode "mpirun") -}}
{{- $images := dict -}}
{{- range .horovod.groups -}}
{{- $_ := set $images (toJson .image) true -}}
{{- $has := include "horovod.hasEnv" (dict "env" .env "name" "HOROVOD_FUSION_THRESHOLD") -}}
{{- $decided = or $decided $has .envFrom .resourceClaims .runtimeClassName -}}
{{- range $key, $count := (.resources).limits -}}
{{- $decided = or $decided (and (contains "/" $key) (int $count)) -}}
{{- end -}}
{{- end -}}
{{- if not (or $decided (gt (len $images) 1)) -}}true{{- end -}}
{{- end }}

{{/* Horovod settings as a JSON list of environment variables. Variables that the group's env sets are left out. */}}
{{- define "horovod.switches" -}}
{{- $horovod := .root.Values.horovod -}}
{{- $env := .group.env -}}
{{- $switches := dict -}}
{{- $output := include "horovod.hasEnv" (dict "env" $env "name" "OUTPUT_PATH") -}}
{{- /* Kubernetes expands $(OUTPUT_PATH), because it comes earlier in the list. */ -}}
{{- if $horovod.timeline -}}
{{- $_ := set $switches "HOROVOD_TIMELINE" "$(OUTPUT_PATH)/horovod-timeline.json" -}}
{{- end -}}
{{- if $horovod.autotune -}}
{{- $_ := set $switches "HOROVOD_AUTOTUNE" "1" -}}
{{- if $output -}}{{- $_ := set $switches "HOROVOD_AUTOTUNE_LOG" "$(OUTPUT_PATH)/horovod-autotune.csv" -}}{{- end -}}
{{- end -}}
{{- $threshold := $horovod.fusionThresholdMiB -}}
{{- /* 0 is a valid threshold: it disables fusion. */ -}}
{{- if not (kindIs "invalid" $threshold) -}}
{{- $_ := set $switches "HOROVOD_FUSION_THRESHOLD" (mul $threshold 1048576 | toString) -}}
{{- end -}}
{{- with $horovod.cycleTimeMs -}}{{- $_ := set $switches "HOROVOD_CYCLE_TIME" (toString .) -}}{{- end -}}
{{- $added := list -}}
{{- range $name, $value := $switches -}}
{{- if not (include "horovod.hasEnv" (dict "env" $env "name" $name)) -}}
{{- $added = append $added (dict "name" $name "value" $value) -}}
{{- end -}}
{{- end -}}
{{ $added | toJson }}
{{- end }}

{{/* The container's security context with the group's capabilities. */}}
{{- define "horovod.workerSecurityContext" -}}
{{- $context := deepCopy .root.Values.securityContext -}}
{{- with .group.capabilities -}}
{{- $of := $context.capabilities | default dict -}}
{{- $_ := set $context "capabilities" (merge (dict "add" (concat ($of.add | default list) . | uniq)) $of) -}}
{{- end -}}
{{ toYaml $context }}
{{- end }}

{{/*
A short hash of the worker's pod spec, which names the version of its keys. The master recognises current pods by it.
A StatefulSet that the upgrade keeps keeps its revision.
*/}}
{{- define "horovod.revision" -}}
{{- with get .root.horovod.sets .group.statefulSet -}}
{{ get .spec.template.metadata.labels "horovod/revision" }}
{{- else -}}
{{- $metadata := list .group.podLabels .group.podAnnotations -}}
{{ printf "%s %s" .group.pod (toJson $metadata) | sha256sum | trunc 10 }}
{{- end -}}
{{- end }}
