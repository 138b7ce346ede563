{{/*
The pod spec of a worker.
Call with (dict "root" $ "group" $group "affinity" $affinity).
*/}}
{{- define "horovod.workerPodSpec" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- if not (hasKey $group.podSpec "automountServiceAccountToken") -}}
automountServiceAccountToken: false
{{- end }}
{{- if eq $root.Values.gang "Kubernetes" }}
schedulingGroup: {podGroupName: {{ $root.facts.podGroup | quote }}}
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
{{- $scheduling := pick $group "nodeSelector" "tolerations" }}
{{- $_ := set $scheduling "affinity" .affinity }}
{{- with include "horovod.scheduling" $scheduling }}
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
      {{- $of := printf "worker.env of group %q" $group.name }}
      {{- include "horovod.env" (dict "entries" (concat $variables $group.env $group.tuning) "of" $of)
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
      {{- toYaml $group.securityContext | nindent 6 }}
    volumeMounts:
      {{- $mounts := include "horovod.chartMounts" (dict "root" $root "component" "worker") | fromYamlArray }}
      {{- include "horovod.uniqueItems" (dict "items" (concat $mounts $group.volumeMounts) "key" "mountPath")
        | nindent 6 }}
  {{- with include "horovod.addedContainers" (dict "root" $root "containers" $group.extraContainers) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "horovod.chartVolumes" (dict "root" $root "component" "worker") | fromYamlArray }}
  {{- $all := concat $volumes $group.volumes }}
  {{- include "horovod.uniqueItems" (dict "items" $all "key" "name") | nindent 2 }}
{{- end }}

{{/*
The variables that the chart sets in a worker; worker.env overrides them.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.workerVariables" -}}
{{- $network := .root.Values.network -}}
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
{{- if .root.facts.ranksChooseFusion }}
- {name: HVD_FUSION_BY_RANKS, value: "1"}
{{- end }}
{{- if not (kindIs "invalid" .root.Values.launch.preload) }}
- {name: HVD_PRELOAD, value: {{ join " " .root.Values.launch.preload | quote }}}
{{- end }}
{{- if ne .root.Values.launch.framework "horovod" }}
- {name: HVD_FRAMEWORK, value: {{ quote .root.Values.launch.framework }}}
{{- end }}
{{- /* Ranks write their metrics there, in memory. The master reads their progress even when metrics.enabled
is false. */}}
- {name: HVD_METRICS_DIR, value: /horovod/generated/metrics}
{{- if .root.Values.metrics.enabled }}
- {name: HVD_METRICS_PORT, value: {{ .root.facts.shared.metricsPort | quote }}}
{{- end }}
{{- /* The network's settings as variables of each library that ranks use. */}}
{{- if $network.interface }}
{{- range (.root.Files.Get "files/hvd_pods/shared/launcher_options.json" | fromJson).interfaceVariables }}
{{- if and (has "workers" .setOn) (ne $network.transport (.unlessTransport | default "never")) }}
- {name: {{ .name | quote }}, value: {{ $network.interface | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- if eq $network.transport "TCP" }}
- {name: FI_PROVIDER, value: tcp}
- {name: UCX_TLS, value: "self,sm,tcp"}
- {name: NCCL_IB_DISABLE, value: "1"}
{{- end }}
{{- end }}
