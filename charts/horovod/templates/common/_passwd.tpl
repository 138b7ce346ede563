{{/* The /etc/passwd of the pods. */}}

{{/*
Where /etc/passwd comes from: ssh and sshd refuse to run as a UID without an entry.
  programs-common  the chart writes it, for the UID in the values
  generated        the pod writes it, for a UID that the platform chooses
  (empty)          the image's own file, which has an entry for root
*/}}
{{- define "horovod.passwdFrom" -}}
{{- $uid := .Values.podSecurityContext.runAsUser -}}
{{- if kindIs "invalid" $uid -}}generated{{- else if int $uid -}}programs-common{{- end -}}
{{- end }}

{{/* An /etc/passwd with an entry for the pod's UID. It is the first line, so that it takes precedence for any UID. */}}
{{- define "horovod.passwd" -}}
{{- with .Values.podSecurityContext -}}
horovod:x:{{ int64 .runAsUser }}:{{ int64 (.runAsGroup | default 0) }}::/tmp:/bin/sh
{{ end -}}
root:x:0:0:root:/root:/bin/sh
sshd:x:100:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
{{- end }}

{{/* The key of a ConfigMap with /etc/passwd; empty where the pods have another file. */}}
{{- define "horovod.passwdFile" -}}
{{- if eq (include "horovod.passwdFrom" .) "programs-common" -}}
passwd: {{ include "horovod.passwd" . | printf "%s\n" | quote }}
{{- end }}
{{- end }}

{{/*
An init container that writes a passwd file with an entry for the pod's UID.
Call with (dict "root" $ "image" $imageOverrides "resources" $ofTheMainContainer).
*/}}
{{- define "horovod.passwdContainer" -}}
{{- if eq (include "horovod.passwdFrom" .root) "generated" }}
- name: passwd
  {{- include "horovod.image" . | nindent 2 }}
  command: [python3, -I, /horovod/bin/hvd_pods/common/passwd.py]
  {{- with include "horovod.initResources" .resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    {{- include "horovod.programMounts" "common" | nindent 4 }}
    - {name: generated, mountPath: /horovod/generated}
{{- end }}
{{- end }}

{{/* Not empty when the pods may run as root. */}}
{{- define "horovod.mayBeRoot" -}}
{{- if not (int (.Values.podSecurityContext.runAsUser | default 0)) -}}yes{{- end -}}
{{- end }}
