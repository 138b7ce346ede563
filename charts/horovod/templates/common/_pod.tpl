{{/* What the pods of the master, the workers and TensorBoard share. */}}

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

{{/* A number of the values, or the default in place of null. Call with (list $number $default). */}}
{{- define "horovod.number" -}}
{{ ternary (last .) (first .) (first . | kindIs "invalid") | int }}
{{- end }}

{{/* Seconds that a pod has to end: Kubernetes' own 30 by default. Call with a group or with .Values.master. */}}
{{- define "horovod.gracePeriod" -}}
{{ include "horovod.number" (list .terminationGracePeriodSeconds 30) }}
{{- end }}

{{/*
Fields of the pod spec that the values of a group or of the master add. horovod.checkPod refuses fields that the chart
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
Containers that the user adds, with the chart's security context where they have none, so that Pod Security admits them.
Call with (dict "root" $ "containers" $list).
*/}}
{{- define "horovod.ownContainers" -}}
{{- $context := .root.Values.securityContext -}}
{{- range .containers }}
- {{ ternary . (set (deepCopy .) "securityContext" $context) (hasKey . "securityContext") | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/*
CPU and memory of an init container. They equal the main container's, so that the pod requests no more and may be of
class Guaranteed.
*/}}
{{- define "horovod.initResources" -}}
{{- $kept := dict -}}
{{- range $side, $amounts := pick . "limits" "requests" -}}
{{- with pick ($amounts | default dict) "cpu" "memory" -}}{{- $_ := set $kept $side . -}}{{- end -}}
{{- end -}}
{{- with $kept -}}
resources:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{- define "horovod.commonMounts" -}}
{{ include "horovod.programMounts" . }}
- {name: generated, mountPath: /horovod/generated}
- {name: keys, mountPath: /horovod/keys, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- with include "horovod.codeMount" . }}
{{ . }}
{{- end }}
{{- end }}

{{- define "horovod.commonVolumes" -}}
{{ include "horovod.programVolumes" . }}
- name: generated
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: tmp
  emptyDir: {}
{{- end }}

{{/*
The volume mount that contains a path, as JSON; empty when none does. Call with (dict "mounts" $list "path" $path).
*/}}
{{- define "horovod.mountOf" -}}
{{- $path := .path -}}
{{- $found := dict -}}
{{- range .mounts -}}
{{- $point := trimSuffix "/" .mountPath -}}
{{- $contains := or (eq $path $point) (hasPrefix (printf "%s/" $point) $path) -}}
{{- if and $contains (gt (len $point) (len (dig "mountPath" "" $found))) -}}
{{- $found = . -}}
{{- end -}}
{{- end -}}
{{- with $found -}}{{ toJson . }}{{- end -}}
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
