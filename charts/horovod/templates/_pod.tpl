{{/* What the pods of master and workers share. */}}

{{/* Call with (dict "root" $ "image" $imageOverrides). */}}
{{- define "horovod.image" -}}
{{- $image := .root.Values.image -}}
image: {{ printf "%s:%s" (.image.repository | default $image.repository) (.image.tag | default $image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .image.pullPolicy | default $image.pullPolicy }}
{{- end }}

{{/* Does the pod's UID need an entry in /etc/passwd made for it? ssh and sshd refuse to run without one. Root has one, and 1000 is the user of this project's images. */}}
{{- define "horovod.needsPasswdEntry" -}}
{{- $uid := .Values.podSecurityContext.runAsUser -}}
{{- if or (kindIs "invalid" $uid) (not (has (int $uid) (list 0 1000))) -}}yes{{- end -}}
{{- end }}

{{/* Pod-level settings. */}}
{{- define "horovod.podSettings" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "horovod.schedulerName" . }}
schedulerName: {{ . }}
{{- end }}
enableServiceLinks: false
securityContext:
  {{- $context := dict }}
  {{- range $key, $value := .Values.podSecurityContext }}
  {{- if not (kindIs "invalid" $value) }}{{ $_ := set $context $key $value }}{{ end }}
  {{- end }}
  {{- toYaml $context | nindent 2 }}
{{- end }}

{{/* Where a pod may run; call with the group or with .Values.master. */}}
{{- define "horovod.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* An init container that writes a passwd file with the pod's UID in it; call with (dict "root" $ "image" $imageOverrides "resources" $ofTheMainContainer). */}}
{{- define "horovod.passwdContainer" -}}
{{- if include "horovod.needsPasswdEntry" .root }}
- name: passwd
  {{- include "horovod.image" . | nindent 2 }}
  command: [python3, -I, /horovod/bin/passwd.py]
  {{- with include "horovod.initResources" .resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: files, mountPath: /horovod/bin, readOnly: true}
    - {name: generated, mountPath: /horovod/generated}
{{- end }}
{{- end }}

{{- define "horovod.commonMounts" -}}
- {name: files, mountPath: /horovod/bin, readOnly: true}
- {name: generated, mountPath: /horovod/generated}
- {name: ssh, mountPath: /horovod/ssh, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if include "horovod.needsPasswdEntry" . }}
- {name: generated, mountPath: /etc/passwd, subPath: passwd, readOnly: true}
{{- end }}
{{- end }}

{{- define "horovod.commonVolumes" -}}
- name: files
  configMap: {name: {{ include "horovod.filesConfigMap" . }}}
- name: generated
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: ssh
  secret: {secretName: {{ include "horovod.sshSecret" . }}, defaultMode: 0440}
- name: tmp
  emptyDir: {}
{{- end }}
