{{/* Staging: filling a volume before the workers start. */}}

{{/*
The init container that fills a volume before a worker starts: hvd_pods/worker/stage.sh.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.stagingContainer" -}}
{{- $staging := .root.Values.staging -}}
{{- if $staging.command }}
- name: staging
  {{- $image := include "horovod.mergedImage" (dict "image" .group.image "own" $staging.image) | fromJson }}
  {{- include "horovod.image" (dict "root" .root "image" $image) | nindent 2 }}
  command:
    {{- $script := dict "root" .root "script" "worker/stage.sh" "command" $staging.command }}
    {{- include "horovod.scriptCommand" $script | nindent 4 }}
  env:
    {{- $owner := printf "%s/%s" .root.Release.Namespace .root.facts.fullname }}
    {{- $variables := list
      (dict "name" "HOME" "value" "/tmp")
      (dict "name" "STAGING_PATH" "value" (trimSuffix "/" $staging.path))
      (dict "name" "STAGING_KEY" "value" (include "horovod.stagingKey" .root))
      (dict "name" "STAGING_OWNER" "value" $owner)
      (dict "name" "STAGING_VERIFY" "value" $staging.verify) }}
    {{- include "horovod.env" (dict "entries" (concat $variables $staging.env) "of" "staging.env")
      | nindent 4 }}
  {{- with include "horovod.initResources" .group.resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp, subPath: staging}
    {{- $holder := include "horovod.mountOf" (dict "mounts" .group.volumeMounts "path" $staging.path)
      | fromJson }}
    {{- range .group.volumeMounts }}
    {{- /* A mount that is read-only for the worker is writable here. */}}
    {{- $mount := ternary (omit . "readOnly") . (eq .mountPath $holder.mountPath) }}
    - {{ toYaml $mount | nindent 6 | trim }}
    {{- end }}
{{- end }}
{{- end }}

{{/* A hash of the source of the data. */}}
{{- define "horovod.stagingKey" -}}
{{- pick .Values.staging "image" "command" "env" | toJson | sha256sum | trunc 16 -}}
{{- end }}

{{/*
Finds the nodes that have the data of each group: the keys of a ConfigMap (hvd_pods/cluster/staged.py writes
it). Its name is a hash of the source and the directory, so that later runs and other releases of the
namespace share it.
*/}}
{{- define "horovod.findNodes" -}}
{{- $staging := .Values.staging -}}
{{- $key := include "horovod.stagingKey" . -}}
{{- $path := trimSuffix "/" $staging.path -}}
{{- range $group := .facts.groups -}}
  {{- $staged := "" -}}
  {{- if and $staging.command (ne $staging.nodes "Any") -}}
    {{- $mount := include "horovod.mountOf" (dict "mounts" .volumeMounts "path" $path) | fromJson -}}
    {{- $below := trimPrefix (trimSuffix "/" $mount.mountPath) $path -}}
    {{- range .volumes -}}
      {{- if and (eq .name $mount.name) .hostPath (not $mount.subPathExpr) -}}
        {{- $directory := printf "%s/%s/%s" .hostPath.path ($mount.subPath | default "") $below | clean -}}
        {{- $staged = printf "%s %s" $directory $key | sha256sum | trunc 10 | printf "horovod-staged-%s" -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $list := dict -}}
  {{- if $staged -}}
    {{- $list = lookup "v1" "ConfigMap" $.Release.Namespace $staged | default dict -}}
  {{- end -}}
  {{- $_ := set $group "staged" $staged -}}
  {{- $_ := set $group "stagedNodes" (keys ($list.data | default dict) | sortAlpha) -}}
{{- end -}}
{{- end }}
