{{/* The SSH keys, and OpenSSH for images without. */}}

{{/* The Secret with the SSH keys. Each ssh.generation of the chart's own Secret has its own name. */}}
{{- define "horovod.sshSecret" -}}
{{- $suffix := ternary "" (printf "-%d" (int .Values.ssh.generation)) (eq (int .Values.ssh.generation) 1) -}}
{{ .Values.ssh.existingSecret | default (printf "%s-ssh%s" (include "horovod.fullname" .) $suffix) }}
{{- end }}

{{/*
The volume with the SSH keys. A worker's pod waits until the chart's own Secret has both keys. The master's pod does not
wait, because it makes the keys when Helm could not. Call with (dict "root" $ "component" "worker").
*/}}
{{- define "horovod.sshVolume" -}}
- name: ssh
  secret:
    secretName: {{ include "horovod.sshSecret" .root | quote }}
    defaultMode: 0440
    {{- if not .root.Values.ssh.existingSecret }}
    items: [{key: user-key, path: user-key}, {key: host-key, path: host-key}]
    {{- if and (eq .component "master") (include "horovod.serviceAccount" .root) }}
    optional: true
    {{- end }}
    {{- end }}
{{- end }}

{{/* The repository of ssh.image; empty where the values have none. */}}
{{- define "horovod.opensshImage" -}}
{{- with .Values.ssh.image }}{{ .repository }}{{ end -}}
{{- end }}

{{/*
An init container that copies OpenSSH out of ssh.image, for images that have none (common/ssh.py takes the image's own).
Call with (dict "root" $ "resources" $ofTheMainContainer).
*/}}
{{- define "horovod.opensshContainer" -}}
{{- if include "horovod.opensshImage" .root }}
{{- $image := .root.Values.ssh.image }}
- name: openssh
  {{- $policy := $image.pullPolicy | default .root.Values.image.pullPolicy }}
  {{- include "horovod.imageFields" (dict "image" (set (deepCopy $image) "pullPolicy" $policy) "tag" "") | nindent 2 }}
  command: [/copy, /horovod/openssh]
  # Its message says why it failed: the container has no other way to do so.
  terminationMessagePolicy: FallbackToLogsOnError
  {{- with include "horovod.initResources" .resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: openssh, mountPath: /horovod/openssh}
{{- end }}
{{- end }}
