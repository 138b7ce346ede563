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
{{- if eq $root.facts.values.gang "Kubernetes" }}
schedulingGroup: {podGroupName: {{ $root.facts.podGroup | quote }}}
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
      - {name: agent, containerPort: {{ int $root.facts.values.agent.port }}}
      {{- if $root.facts.values.metrics.enabled }}
      - {name: metrics, containerPort: {{ $root.facts.shared.metricsPort }}}
      {{- end }}
    env:
      {{- $variables := include "horovod.workerVariables" . | fromJsonArray }}
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
      {{- $mounts := include "horovod.chartMounts" (dict "root" $root "component" "worker") | fromJsonArray }}
      {{- include "horovod.uniqueItems" (dict "items" (concat $mounts $group.volumeMounts) "key" "mountPath")
        | nindent 6 }}
  {{- with include "horovod.addedContainers" (dict "root" $root "containers" $group.extraContainers) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
volumes:
  {{- $volumes := include "horovod.chartVolumes" (dict "root" $root "component" "worker") | fromJsonArray }}
  {{- $all := concat $volumes $group.volumes }}
  {{- include "horovod.uniqueItems" (dict "items" $all "key" "name") | nindent 2 }}
{{- end }}

{{/*
The variables that the chart sets in a worker, as JSON; worker.env overrides them.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.workerVariables" -}}
{{- $facts := .root.facts -}}
{{- $launch := .root.facts.values.launch -}}
{{- $metrics := .root.facts.values.metrics -}}
{{- $network := .root.facts.values.network -}}
{{- $ofPod := dict "fieldRef" (dict "fieldPath" "metadata.name") -}}
{{- $ofRevision := dict "fieldRef" (dict "fieldPath" "metadata.labels['hvdchart/revision']") -}}
{{- $added := list
  (dict "name" "HVD_SLOTS" "value" (.group.slots | int | toString))
  (dict "name" "HVD_WORKERS" "value" (toString $facts.workers))
  (dict "name" "HVD_POD" "valueFrom" $ofPod)
  (dict "name" "HVD_AGENT_PORT" "value" (.root.facts.values.agent.port | int | toString))
  (dict "name" "HVD_MASTER_NAME" "value" $facts.keys.names.master)
  (dict "name" "HVD_REVISION" "valueFrom" $ofRevision) -}}
{{- /* Turn off Intel MPI's own binding, because hvd_pods/rank/start.py binds the ranks. */ -}}
{{- $added = append $added (dict "name" "I_MPI_PIN" "value" "0") -}}
{{- /* Not all container runtimes let processes of a pod read each other's memory, as MPICH and UCX
would. */ -}}
{{- $added = append $added (dict "name" "MPIR_CVAR_CH4_CMA_ENABLE" "value" "0") -}}
{{- $added = append $added (dict "name" "UCX_POSIX_USE_PROC_LINK" "value" "n") -}}
{{- $added = append $added (dict "name" "HVD_GRACE" "value" (toString .group.grace)) -}}
{{- if $facts.kueue -}}
  {{- $added = append $added (dict "name" "HVD_IN_QUEUE" "value" "1") -}}
{{- end -}}
{{- $stall := int $facts.effective.launch.stallTimeoutSeconds -}}
{{- $added = append $added (dict "name" "HVD_STALL_TIMEOUT" "value" (toString $stall)) -}}
{{- if $facts.ranksChooseFusion -}}
  {{- $added = append $added (dict "name" "HVD_FUSION_BY_RANKS" "value" "1") -}}
{{- end -}}
{{- if not (kindIs "invalid" $launch.preload) -}}
  {{- $added = append $added (dict "name" "HVD_PRELOAD" "value" (join " " $launch.preload)) -}}
{{- end -}}
{{- if ne $launch.framework "horovod" -}}
  {{- $added = append $added (dict "name" "HVD_FRAMEWORK" "value" $launch.framework) -}}
{{- end -}}
{{- /* Ranks write their metrics there, in memory. The master reads their progress even when metrics.enabled
is false. */ -}}
{{- $added = append $added (dict "name" "HVD_METRICS_DIR" "value" "/horovod/generated/metrics") -}}
{{- if $metrics.enabled -}}
  {{- $added = append $added (dict "name" "HVD_METRICS_PORT" "value" (toString $facts.shared.metricsPort)) -}}
{{- end -}}
{{- /* The network's settings as variables of each library that ranks use. */ -}}
{{- if $network.interface -}}
  {{- range (.root.Files.Get "files/hvd_pods/shared/launcher_options.json" | fromJson).interfaceVariables -}}
    {{- if and (has "workers" .setOn) (ne $network.transport (.unlessTransport | default "never")) -}}
      {{- $added = append $added (dict "name" .name "value" $network.interface) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $network.transport "TCP" -}}
  {{- $added = concat $added (list
    (dict "name" "FI_PROVIDER" "value" "tcp")
    (dict "name" "UCX_TLS" "value" "self,sm,tcp")
    (dict "name" "NCCL_IB_DISABLE" "value" "1")) -}}
{{- end -}}
{{- concat (include "horovod.userVariables" . | fromJsonArray) $added | toJson -}}
{{- end }}
