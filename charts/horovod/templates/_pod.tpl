{{/* What the pods of the master and the workers share. */}}

{{/*
The image and its pull policy. With a digest, the tag is for the reader only: the kubelet uses the digest.
Call with (dict "root" $ "image" $imageOverrides).
*/}}
{{- define "horovod.image" -}}
{{- $image := include "horovod.mergedImage" (dict "image" .root.Values.image "own" .image) | fromJson -}}
{{- $tag := $image.tag | default (ternary "" .root.Chart.AppVersion (not (empty $image.digest))) -}}
{{- $reference := $image.repository -}}
{{- with $tag -}}{{- $reference = printf "%s:%s" $reference . -}}{{- end -}}
{{- with $image.digest -}}{{- $reference = printf "%s@%s" $reference . -}}{{- end -}}
image: {{ $reference | quote }}
imagePullPolicy: {{ $image.pullPolicy | quote }}
{{- end }}

{{/*
An image with some keys overridden, as JSON. A digest belongs to its repository and tag, so that overriding one of these
drops it, and a new digest drops the tag. Call with (dict "image" $image "own" $overrides).
*/}}
{{- define "horovod.mergedImage" -}}
{{- $image := deepCopy (.image | default dict) -}}
{{- $own := .own | default dict -}}
{{- if or $own.repository $own.tag $own.digest -}}{{- $image = omit $image "digest" -}}{{- end -}}
{{- if $own.digest -}}{{- $image = omit $image "tag" -}}{{- end -}}
{{- range $key, $value := $own -}}
{{- with $value -}}{{- $_ := set $image $key . -}}{{- end -}}
{{- end -}}
{{ toJson $image }}
{{- end }}

{{/*
Where /etc/passwd comes from: ssh and sshd refuse to run as a UID without an entry.
  programs-common  the chart writes it, for the UID in the values
  generated  the pod writes it, for a UID that only the platform knows
  (empty)    the image's own file, which has an entry for root
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

{{/* Not empty when the pods may run as root. */}}
{{- define "horovod.mayBeRoot" -}}
{{- if not (int (.Values.podSecurityContext.runAsUser | default 0)) -}}yes{{- end -}}
{{- end }}

{{/* Settings of the pod spec. */}}
{{- define "horovod.podSettings" -}}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with include "horovod.schedulerName" . }}
schedulerName: {{ . | quote }}
{{- end }}
enableServiceLinks: false
securityContext:
  {{- $context := dict }}
  {{- range $key, $value := .Values.podSecurityContext }}
  {{- if not (kindIs "invalid" $value) }}{{ $_ := set $context $key $value }}{{ end }}
  {{- end }}
  {{- toYaml $context | nindent 2 }}
{{- end }}

{{/*
Fields of the pod spec that the values of a group or of the master add. horovod.checkPod refuses those that the chart
sets itself. Call with a group or with .Values.master.
*/}}
{{- define "horovod.ownPodFields" -}}
{{- if not (kindIs "invalid" .terminationGracePeriodSeconds) }}
terminationGracePeriodSeconds: {{ int .terminationGracePeriodSeconds }}
{{- end }}
{{- with .resourceClaims }}
resourceClaims:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .podSpec }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The same for the main container. */}}
{{- define "horovod.ownContainerFields" -}}
{{- with .envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .container }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Containers of the user's, with the chart's security context where they have none, so that Pod Security admits them.
Call with (dict "root" $ "containers" $list).
*/}}
{{- define "horovod.ownContainers" -}}
{{- $context := .root.Values.securityContext -}}
{{- range .containers }}
- {{ ternary . (set (deepCopy .) "securityContext" $context) (hasKey . "securityContext") | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/* Node selector, affinity and tolerations. Call with a group or with .Values.master. */}}
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

{{/*
The items with each key once, as YAML; the last one of a key wins, in the place of the first.
Call with (dict "items" $list "key" "name").
*/}}
{{- define "horovod.unique" -}}
{{- $key := .key -}}
{{- $winners := dict -}}
{{- range .items -}}{{- $_ := set $winners (get . $key) . -}}{{- end -}}
{{- $unique := list -}}
{{- range .items -}}
{{- with get $winners (get . $key) -}}
{{- $unique = append $unique . -}}
{{- $_ := unset $winners (get . $key) -}}
{{- end -}}
{{- end -}}
{{ toYaml $unique }}
{{- end }}

{{/* Call with (dict "root" $ "programs" "common master"). */}}
{{- define "horovod.commonMounts" -}}
{{- include "horovod.programMounts" .programs }}
- {name: generated, mountPath: /horovod/generated}
- {name: ssh, mountPath: /horovod/ssh, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- with include "horovod.codeMount" .root }}
{{ . }}
{{- end }}
{{- with include "horovod.passwdFrom" .root }}
- {name: {{ . | quote }}, mountPath: /etc/passwd, subPath: passwd, readOnly: true}
{{- end }}
{{- end }}

{{/* Call with (dict "root" $ "programs" "common master"). */}}
{{- define "horovod.commonVolumes" -}}
{{- include "horovod.programVolumes" (dict "root" .root "folders" .programs) }}
- name: generated
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: tmp
  emptyDir: {}
{{- end }}

{{/* The volume with the SSH keys. Call with (dict "root" $ "component" "worker").
A worker's pod waits until the chart's own Secret has both keys. The master's does not: it makes them when Helm could
not. */}}
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
