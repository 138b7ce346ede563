{{/* A worker's pod. */}}

{{- define "horovod.prepareWorkers" -}}
{{- $facts := .facts -}}
{{- range $group := .facts.groups -}}
  {{- /* A master in a queue cannot replace the pods of the run before, so that each run has StatefulSets of
  its own. */ -}}
  {{- $ofRun := printf "%s-%s" .objectName (trunc 8 $facts.settingsHash) -}}
  {{- $name := ternary .objectName $ofRun (empty $facts.kueue) -}}
  {{- $metadata := include "horovod.podMetadata" (dict "root" $ "of" $group) | fromJson -}}
  {{- $placed := dict "root" $ "group" $group "nodes" .stagedNodes -}}
  {{- $anywhere := dict "root" $ "group" $group "nodes" list -}}
  {{- /* The revision names the version of the keys, and tells the master which pods are current. The nodes
  are no part of it: running workers are on such nodes already. A StatefulSet that the upgrade keeps keeps
  its own. */ -}}
  {{- $content := list $metadata.labels $metadata.annotations | toJson
    | printf "%s %s" (include "horovod.workerPodSpec" $anywhere) -}}
  {{- $revision := sha256sum $content | trunc 10 -}}
  {{- with get $facts.sets $name -}}
    {{- $revision = get .spec.template.metadata.labels "hvdchart/revision" -}}
  {{- end -}}
  {{- $_ := set $group "statefulSet" $name -}}
  {{- $_ := set $group "labels" $metadata.labels -}}
  {{- $_ := set $group "annotations" $metadata.annotations -}}
  {{- $_ := set $group "pod" (include "horovod.workerPodSpec" $placed) -}}
  {{- $_ := set $group "revision" $revision -}}
{{- end -}}
{{- end }}

{{/*
The pod spec of a worker.
Call with (dict "root" $ "group" $group "nodes" $list): the nodes that have the staged data, or none.
*/}}
{{- define "horovod.workerPodSpec" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- if not (hasKey $group.podSpec "automountServiceAccountToken") -}}
automountServiceAccountToken: false
{{- end }}
{{- with include "horovod.schedulingGroup" $root }}
{{ . }}
{{- end }}
{{- if $root.Values.hostNetwork }}
  {{- /* The master does not use it: on a node that it shares with a worker, mpirun would treat the worker as
  the local host. */}}
hostNetwork: true
  {{- /* On the node's network a pod would otherwise use the node's DNS, which does not resolve Services. */}}
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{ include "horovod.podSettings" $root }}
{{- with include "horovod.addedPodFields" $group }}
  {{- . | trim | nindent 0 }}
{{- end }}
{{- $affinity := include "horovod.workerAffinity" . | fromYaml }}
{{- with include "horovod.scheduling" (set (pick $group "nodeSelector" "tolerations") "affinity" $affinity) }}
{{ trim . }}
{{- end }}
{{- $own := include "horovod.addedContainers" (dict "root" $root "containers" $group.initContainers) }}
{{- with print $own (include "horovod.stagingContainer" .) }}
initContainers:
  {{- . | trim | nindent 2 }}
{{- end }}
containers:
  - name: worker
    {{- include "horovod.image" (dict "root" $root "image" $group.image) | nindent 4 }}
    command:
      {{- $program := list "-I" "-S" "/horovod/bin/hvd_pods/worker/main.py" }}
      {{- concat $root.facts.programs.command $program | toYaml | nindent 6 }}
    ports:
      - {name: agent, containerPort: {{ int $root.Values.agent.port }}}
      {{- if $root.Values.metrics.enabled }}
      - {name: metrics, containerPort: {{ $root.facts.shared.metricsPort }}}
      {{- end }}
    env:
      {{- $variables := include "horovod.workerVariables" . | fromYamlArray }}
      {{- $tuning := include "horovod.tuningVariables" . | fromJsonArray }}
      {{- $of := printf "worker.env of group %q" $group.name }}
      {{- include "horovod.env" (dict "entries" (concat $variables $group.env $tuning) "of" $of)
        | nindent 6 }}
    {{- with include "horovod.addedContainerFields" $group }}
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
      {{- $context := deepCopy $root.Values.securityContext }}
      {{- with $group.capabilities }}
      {{- $of := $context.capabilities | default dict }}
      {{- $_ := set $context "capabilities"
        (merge (dict "add" (concat ($of.add | default list) . | uniq)) $of) }}
      {{- end }}
      {{- toYaml $context | nindent 6 }}
    volumeMounts:
      {{- $mounts := include "horovod.mounts" (dict "root" $root "component" "worker") | fromYamlArray }}
      {{- include "horovod.unique" (dict "items" (concat $mounts $group.volumeMounts) "key" "mountPath")
        | nindent 6 }}
  {{- with include "horovod.addedContainers" (dict "root" $root "containers" $group.extraContainers) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "horovod.volumes" (dict "root" $root "component" "worker") | fromYamlArray }}
  {{- include "horovod.unique" (dict "items" (concat $volumes $group.volumes) "key" "name") | nindent 2 }}
{{- end }}

{{/*
The variables that the chart sets in a worker; worker.env overrides them.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.workerVariables" -}}
{{ include "horovod.userVariables" . }}
- {name: HVD_SLOTS, value: {{ .group.slots | int | quote }}}
- {name: HVD_WORKERS, value: {{ .root.facts.workers | quote }}}
- {name: HVD_POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: HVD_AGENT_PORT, value: {{ .root.Values.agent.port | int | quote }}}
- {name: HVD_MASTER_NAME, value: {{ .root.facts.keys.names.master | quote }}}
- {name: HVD_REVISION, valueFrom: {fieldRef: {fieldPath: "metadata.labels['hvdchart/revision']"}}}
{{- /* Turn off Intel MPI's own binding, because hvd_pods/rank/start.py binds the ranks. */}}
- {name: I_MPI_PIN, value: "0"}
{{- /* Not all container runtimes let processes of a pod read each other's memory, as MPICH and UCX
would. */}}
- {name: MPIR_CVAR_CH4_CMA_ENABLE, value: "0"}
- {name: UCX_POSIX_USE_PROC_LINK, value: "n"}
- {name: HVD_GRACE, value: {{ .group.grace | quote }}}
{{- if .root.facts.kueue }}
- {name: HVD_IN_QUEUE, value: "1"}
{{- end }}
- {name: HVD_STALL_TIMEOUT, value: {{ int .root.facts.effective.launch.stallTimeoutSeconds | quote }}}
{{- if include "horovod.fusesByRanks" .root }}
- {name: HVD_FUSION_BY_RANKS, value: "1"}
{{- end }}
{{- if not (kindIs "invalid" .root.Values.launch.preload) }}
- {name: HVD_PRELOAD, value: {{ join " " .root.Values.launch.preload | quote }}}
{{- end }}
{{- with include "horovod.frameworkVariable" .root }}
- {{ . }}
{{- end }}
{{- /* Ranks write their metrics there, in memory. The master reads their progress even when metrics.enabled
is false. */}}
- {name: HVD_METRICS_DIR, value: /horovod/generated/metrics}
{{- if .root.Values.metrics.enabled }}
- {name: HVD_METRICS_PORT, value: {{ .root.facts.shared.metricsPort | quote }}}
{{- end }}
{{- with include "horovod.networkVariables" .root }}
{{ . }}
{{- end }}
{{- end }}
