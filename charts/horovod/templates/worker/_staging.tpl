{{/*
The init container that fills a volume before a worker starts: hvd_pods/worker/stage.sh.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.stagingContainer" -}}
{{- $staging := .root.facts.values.staging -}}
{{- if $staging.command }}
- name: staging
  {{- $images := dict "image" .group.image "overrides" $staging.image }}
  {{- $image := include "horovod.mergedImage" $images | fromJson }}
  {{- include "horovod.image" (dict "root" .root "image" $image) | nindent 2 }}
  command:
    {{- $script := dict "root" .root "script" "worker/stage.sh" "command" $staging.command }}
    {{- include "horovod.scriptCommand" $script | nindent 4 }}
  env:
    {{- $owner := printf "%s/%s" .root.Release.Namespace .root.facts.fullname }}
    {{- $variables := list
      (dict "name" "HOME" "value" "/tmp")
      (dict "name" "STAGING_PATH" "value" .root.facts.stagingPath)
      (dict "name" "STAGING_KEY" "value" .root.facts.stagingKey)
      (dict "name" "STAGING_OWNER" "value" $owner)
      (dict "name" "STAGING_VERIFY" "value" $staging.verify) }}
    {{- include "horovod.env" (dict "entries" (concat $variables $staging.env) "key" "staging.env")
      | nindent 4 }}
  {{- with include "horovod.initResources" .group.resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.facts.values.securityContext | nindent 4 }}
  volumeMounts:
    {{- /* A mount that is read-only for the worker is writable here. */}}
    {{- $at := omit .group.stagingMount "readOnly" }}
    {{- $tmp := dict "name" "tmp" "mountPath" "/tmp" "subPath" "staging" }}
    {{- include "horovod.mountsBesideTmp" (dict "mounts" .group.mounts "at" $at "tmp" $tmp) | nindent 4 }}
{{- end }}
{{- end }}
