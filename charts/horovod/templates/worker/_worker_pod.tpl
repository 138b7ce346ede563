{{/*
The pod spec of a worker.
Call with (dict "root" $ "group" $group "nodes" $list), as horovod.workerAffinity.
*/}}
{{- define "horovod.workerPodSpec" -}}
{{- $root := .root -}}
{{- $group := .group -}}
{{- if not (hasKey $group.podSpec "automountServiceAccountToken") -}}
automountServiceAccountToken: false
{{- end }}
{{- with $root.facts.gangFields }}
{{ . }}
{{- end }}
{{- if $root.facts.values.hostNetwork }}
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
{{- $_ := set $scheduling "affinity" (include "horovod.workerAffinity" . | fromJson) }}
{{- with include "horovod.scheduling" $scheduling }}
{{ trim . }}
{{- end }}
{{- $added := include "horovod.addedContainers" (dict "root" $root "containers" $group.initContainers) }}
{{- with print $added (include "horovod.stagingContainer" .) }}
initContainers:
  {{- . | trim | nindent 2 }}
{{- end }}
containers:
  {{- include "horovod.workerContainer" . | nindent 2 }}
  {{- with include "horovod.addedContainers" (dict "root" $root "containers" $group.extraContainers) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
volumes:
  {{- $chartVolumes := include "horovod.chartVolumes" (dict "root" $root "component" "worker") }}
  {{- $volumes := concat (fromYamlArray $chartVolumes) $group.volumes }}
  {{- include "horovod.uniqueItems" (dict "items" $volumes "key" "name") | nindent 2 }}
{{- end }}

{{/* The main container of a worker. Call with (dict "root" $ "group" $group). */}}
{{- define "horovod.workerContainer" -}}
{{- $root := .root -}}
{{- $group := .group -}}
- name: worker
  {{- include "horovod.image" (dict "root" $root "image" $group.image) | nindent 2 }}
  command:
    {{- $program := list "-I" "-S" "/horovod/bin/hvd_pods/worker/main.py" }}
    {{- concat $root.facts.programs.command $program | toYaml | nindent 4 }}
  ports:
    - {name: agent, containerPort: {{ int $root.facts.values.agent.port }}}
    {{- if $root.facts.values.metrics.enabled }}
    - {name: metrics, containerPort: {{ int $root.facts.values.metrics.port }}}
    {{- end }}
  env:
    {{- $variables := concat
      (include "horovod.workerVariables" . | fromYamlArray)
      $root.facts.libraryVariables
      $group.env
      $group.tuning }}
    {{- $key := printf "%s.env" $group.valuesKey }}
    {{- include "horovod.env" (dict "entries" $variables "key" $key) | nindent 4 }}
  {{- with include "horovod.addedContainerFields" $group }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  startupProbe:
    tcpSocket: {port: agent}
    periodSeconds: 1
    failureThreshold: 300
  {{- with $group.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $group.securityContext | nindent 4 }}
  volumeMounts:
    {{- $chartMounts := include "horovod.chartMounts" (dict "root" $root "component" "worker") }}
    {{- $mounts := concat (fromYamlArray $chartMounts) $group.mounts }}
    {{- include "horovod.uniqueItems" (dict "items" $mounts "key" "mountPath") | nindent 4 }}
{{- end }}

{{/*
The variables that the chart sets in a worker; worker.env overrides them.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.workerVariables" -}}
{{- $facts := .root.facts -}}
{{- $values := $facts.values -}}
{{ include "horovod.userVariables" . }}
- {name: HVD_SLOTS, value: {{ int .group.slots | quote }}}
- {name: HVD_WORKERS, value: {{ quote $facts.workers }}}
- {name: HVD_POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: HVD_AGENT_PORT, value: {{ int $values.agent.port | quote }}}
- {name: HVD_MASTER_NAME, value: {{ quote $facts.keys.names.master }}}
- {name: HVD_REVISION, valueFrom: {fieldRef: {fieldPath: "metadata.labels['hvdchart/revision']"}}}
{{- /* Turn off Intel MPI's own binding, because hvd_pods/rank/start.py binds the ranks. */}}
- {name: I_MPI_PIN, value: "0"}
{{- /* Not all container runtimes let processes of a pod read each other's memory, as MPICH and UCX
would. */}}
- {name: MPIR_CVAR_CH4_CMA_ENABLE, value: "0"}
- {name: UCX_POSIX_USE_PROC_LINK, value: "n"}
- {name: HVD_GRACE_SECONDS, value: {{ quote .group.grace }}}
{{- if $facts.kueue }}
- {name: HVD_IN_QUEUE, value: "1"}
{{- end }}
- {name: HVD_STALL_TIMEOUT_SECONDS, value: {{ int $facts.effective.launch.stallTimeoutSeconds | quote }}}
{{- if $facts.ranksChooseFusion }}
- {name: HVD_FUSION_BY_RANKS, value: "1"}
{{- end }}
{{- if not (kindIs "invalid" $values.launch.preload) }}
- {name: HVD_PRELOAD, value: {{ join " " $values.launch.preload | quote }}}
{{- end }}
{{- if ne $values.launch.framework "horovod" }}
- {name: HVD_FRAMEWORK, value: {{ quote $values.launch.framework }}}
{{- end }}
{{- /* Ranks write their metrics there, in memory. The master reads their progress even when metrics.enabled
is false. */}}
- {name: HVD_METRICS_DIR, value: /horovod/generated/metrics}
{{- if $values.metrics.enabled }}
- {name: HVD_METRICS_PORT, value: {{ int $values.metrics.port | quote }}}
{{- end }}
{{- end }}
