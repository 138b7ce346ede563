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
      {{- with $root.Values.network.interface }}
      - {name: NCCL_SOCKET_IFNAME, value: {{ . | quote }}}
      - {name: HOROVOD_GLOO_IFACE, value: {{ . | quote }}}
      - {name: OMPI_MCA_btl_tcp_if_include, value: {{ . | quote }}}
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

{{/* The container's security context with the group's own capabilities. */}}
{{- define "horovod.workerSecurityContext" -}}
{{- $context := deepCopy .root.Values.securityContext -}}
{{- with .group.capabilities -}}
{{- $of := $context.capabilities | default dict -}}
{{- $_ := set $context "capabilities" (merge (dict "add" (concat ($of.add | default list) .)) $of) -}}
{{- end -}}
{{ toYaml $context }}
{{- end }}

{{/* What a worker pod is made of, and which keys it has, as a short hash: the master knows by it which pods are of its run. */}}
{{- define "horovod.revision" -}}
{{ printf "%s %s %s %d" (include "horovod.workerPodBody" .) (toJson .group.podLabels) (toJson .group.podAnnotations) (int .root.Values.ssh.generation) | sha256sum | trunc 10 }}
{{- end }}
