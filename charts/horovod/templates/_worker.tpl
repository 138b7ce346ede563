{{/* The pod spec of a worker. Call with (dict "root" $ "group" $group). */}}
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
# The master does not use it: on a node that it shares with a worker, mpirun would treat the worker as the local host.
hostNetwork: true
# On the node's network a pod would otherwise use the node's DNS, which does not resolve Services.
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
      # The image's home directory is not writable, because the root file system is read-only.
      - {name: HOME, value: /tmp}
      - {name: HVD_SLOTS, value: {{ $group.slots | quote }}}
      - {name: HVD_SSH_PORT, value: {{ $root.Values.ssh.port | quote }}}
      - {name: HVD_REVISION, valueFrom: {fieldRef: {fieldPath: "metadata.labels['horovod/revision']"}}}
      # Turn off Intel MPI's own binding: files/rank.py binds the ranks.
      - {name: I_MPI_PIN, value: "0"}
      # Processes of a pod may not read each other's memory, which MPICH and UCX would attempt.
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
      # The privilege separation directory of an sshd that runs as root.
      - {name: generated, mountPath: /run/sshd, subPath: sshd}
      {{- end }}
      {{- with $group.volumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  {{- include "horovod.commonVolumes" $root | nindent 2 }}
  {{- include "horovod.sshVolume" (dict "root" $root "component" "worker") | nindent 2 }}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ $root.Values.shm.sizeLimit }}}
  {{- with $group.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The network's settings as variables of each library that ranks use; worker.env overrides them. */}}
{{- define "horovod.networkEnv" -}}
{{- $network := .Values.network -}}
{{- if $network.interface }}
{{- range (.Files.Get "files/launchers.json" | fromJson).interfaceVariables }}
{{- if and (has "workers" .setOn) (ne $network.transport (.unlessTransport | default "never")) }}
- {name: {{ .name }}, value: {{ $network.interface | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- if eq $network.transport "TCP" }}
- {name: FI_PROVIDER, value: tcp}
- {name: UCX_TLS, value: "self,sm,tcp"}
- {name: NCCL_IB_DISABLE, value: "1"}
{{- end }}
{{- end }}

{{/* The container's security context with the group's capabilities, and for root the capabilities that sshd needs. */}}
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

{{/* A short hash of the worker's pod spec and SSH keys. The master uses it to recognise the pods of its own run. */}}
{{- define "horovod.revision" -}}
{{ printf "%s %s %s %d" .group.pod (toJson .group.podLabels) (toJson .group.podAnnotations) (int .root.Values.ssh.generation) | sha256sum | trunc 10 }}
{{- end }}
