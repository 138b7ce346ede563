{{/* A worker's pod template without its revision; call with (dict "root" $ "group" $group). */}}
{{- define "horovod.workerPodBody" -}}
{{- $root := .root -}}
{{- $group := .group -}}
automountServiceAccountToken: false
{{- with $group.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if $root.Values.hostPID }}
hostPID: true
{{- end }}
{{- if $root.Values.hostNetwork }}
# The master stays off it: on a node that it shared with a worker, mpirun would take the worker for itself.
hostNetwork: true
# On the node's network, a pod would otherwise ask the node's DNS, which knows no Service.
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{ include "horovod.podSettings" $root }}
{{- with include "horovod.scheduling" $group }}
{{ . }}
{{- end }}
{{- with $group.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ mergeOverwrite (dict "labelSelector" (dict "matchLabels" (include "horovod.selector" (dict "root" $root "component" "worker") | fromYaml))) . | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- $passwd := include "horovod.passwdContainer" (dict "root" $root "image" $group.image "resources" $group.resources) }}
{{- with print $passwd (include "horovod.stagingContainer" .) }}
initContainers:
  {{- . | trim | nindent 2 }}
{{- end }}
containers:
  - name: worker
    {{- include "horovod.image" (dict "root" $root "image" $group.image) | nindent 4 }}
    command: [python3, -I, /horovod/bin/worker.py]
    ports:
      - {name: ssh, containerPort: {{ $root.Values.ssh.port }}}
    env:
      # The image's home directory cannot be written: the root file system is read-only.
      - {name: HOME, value: /tmp}
      - {name: HVD_SLOTS, value: {{ $group.slots | quote }}}
      - {name: HVD_SSH_PORT, value: {{ $root.Values.ssh.port | quote }}}
      - {name: HVD_REVISION, valueFrom: {fieldRef: {fieldPath: "metadata.labels['horovod/revision']"}}}
      # Intel MPI would bind ranks by rules of its own.
      - {name: I_MPI_PIN, value: "0"}
      # A pod's processes may not read one another's memory, which MPICH and UCX try.
      - {name: MPIR_CVAR_CH4_CMA_ENABLE, value: "0"}
      - {name: UCX_POSIX_USE_PROC_LINK, value: "n"}
      {{- with include "horovod.networkEnv" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $group.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    startupProbe:
      tcpSocket: {port: ssh}
      periodSeconds: 1
      failureThreshold: 300
    {{- with $group.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "horovod.workerSecurityContext" . | nindent 6 }}
    volumeMounts:
      {{- include "horovod.commonMounts" $root | nindent 6 }}
      - {name: shm, mountPath: /dev/shm}
      {{- if include "horovod.mayBeRoot" $root }}
      # Where sshd of root jails its unprivileged half.
      - {name: generated, mountPath: /run/sshd, subPath: sshd}
      {{- end }}
      {{- with $group.volumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  {{- include "horovod.commonVolumes" $root | nindent 2 }}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ $root.Values.shm.sizeLimit }}}
  {{- with $group.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The network's settings in the words of each library that ranks use; worker.env wins over them. */}}
{{- define "horovod.networkEnv" -}}
{{- $network := .Values.network -}}
{{- with $network.interface }}
- {name: NCCL_SOCKET_IFNAME, value: {{ . | quote }}}
- {name: HOROVOD_GLOO_IFACE, value: {{ . | quote }}}
- {name: OMPI_MCA_btl_tcp_if_include, value: {{ . | quote }}}
- {name: FI_TCP_IFACE, value: {{ . | quote }}}
{{- /* UCX takes its RDMA devices from the same variable. */}}
{{- if ne $network.transport "RDMA" }}
- {name: UCX_NET_DEVICES, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- if eq $network.transport "TCP" }}
- {name: FI_PROVIDER, value: tcp}
- {name: UCX_TLS, value: "self,sm,tcp"}
- {name: NCCL_IB_DISABLE, value: "1"}
{{- end }}
{{- end }}

{{/* The container's security context with the group's own capabilities, and for root those that sshd needs to log a user in. */}}
{{- define "horovod.workerSecurityContext" -}}
{{- $context := deepCopy .root.Values.securityContext -}}
{{- $added := .group.capabilities -}}
{{- if eq (toString .root.Values.podSecurityContext.runAsUser) "0" -}}
{{- $added = concat $added (list "SETGID" "SETUID" "SYS_CHROOT") -}}
{{- end -}}
{{- with $added -}}
{{- $of := $context.capabilities | default dict -}}
{{- $_ := set $context "capabilities" (merge (dict "add" (concat ($of.add | default list) . | uniq)) $of) -}}
{{- end -}}
{{ toYaml $context }}
{{- end }}

{{/* What a worker pod is made of, and which keys it has, as a short hash: the master knows by it which pods are of its run. */}}
{{- define "horovod.revision" -}}
{{ printf "%s %s %s %d" (include "horovod.workerPodBody" .) (toJson .group.podLabels) (toJson .group.podAnnotations) (int .root.Values.ssh.generation) | sha256sum | trunc 10 }}
{{- end }}
