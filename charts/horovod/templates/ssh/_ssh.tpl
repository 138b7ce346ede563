{{/* The SSH keys. */}}

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
