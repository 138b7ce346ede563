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
{{- $main := dict "root" $root "image" $group.image "resources" $group.resources }}
{{- $passwd := include "horovod.passwdContainer" $main }}
{{- $own := include "horovod.ownContainers" (dict "root" $root "containers" $group.initContainers) }}
{{- with print $passwd $own (include "horovod.stagingContainer" .) }}
initContainers:
  {{- . | trim | nindent 2 }}
{{- end }}
containers:
  - name: worker
    {{- include "horovod.image" (dict "root" $root "image" $group.image) | nindent 4 }}
    command: [python3, -I, -S, /horovod/bin/hvd_pods/worker/main.py]
    ports:
      - {name: ssh, containerPort: {{ int $root.Values.ssh.port }}}
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
{{ include "horovod.commonMounts" (dict "root" . "programs" "common rank warm worker") }}
- {name: shm, mountPath: /dev/shm}
{{- if include "horovod.mayBeRoot" . }}
# The privilege separation directory of an sshd that runs as root.
- {name: generated, mountPath: /run/sshd, subPath: sshd}
{{- end }}
{{- end }}

{{- define "horovod.workerVolumes" -}}
{{ include "horovod.commonVolumes" (dict "root" . "programs" "common rank warm worker") }}
{{ include "horovod.sshVolume" (dict "root" . "component" "worker") }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.shm.sizeLimit | quote }}}
{{- end }}

{{/* The workers' ServiceAccount; empty for the namespace's default. Call with (dict "root" $ "group" $group). */}}
{{- define "horovod.workerServiceAccount" -}}
{{- $default := ternary (printf "%s-worker" (include "horovod.fullname" .root)) "" .group.serviceAccount.create -}}
{{ .group.serviceAccount.name | default $default }}
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

{{/*
A short hash of the worker's pod spec and SSH keys. The master uses it to recognise the pods of its own run.
A StatefulSet that the upgrade keeps keeps its revision.
*/}}
{{- define "horovod.revision" -}}
{{- with get .root.horovod.sets .group.statefulSet -}}
{{ get .spec.template.metadata.labels "horovod/revision" }}
{{- else -}}
{{- $metadata := list .group.podLabels .group.podAnnotations (int .root.Values.ssh.generation) -}}
{{ printf "%s %s" .group.pod (toJson $metadata) | sha256sum | trunc 10 }}
{{- end -}}
{{- end }}
