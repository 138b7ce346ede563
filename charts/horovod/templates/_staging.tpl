{{/*
The init container that fills a volume before a worker starts: files/stage.sh. Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.stagingContainer" -}}
{{- $staging := .root.Values.staging -}}
{{- if $staging.command }}
- name: staging
  {{- $image := include "horovod.mergedImage" (dict "image" .group.image "own" $staging.image) | fromJson }}
  {{- include "horovod.image" (dict "root" .root "image" $image) | nindent 2 }}
  command:
    {{- concat (list "sh" "/horovod/bin/stage.sh") $staging.command | toYaml | nindent 4 }}
  env:
    {{- $variables := include "horovod.stagingVariables" .root | fromYamlArray }}
    {{- include "horovod.env" (dict "entries" (concat $variables $staging.env) "of" "staging.env") | nindent 4 }}
  {{- with include "horovod.initResources" .group.resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.securityContext | nindent 4 }}
  volumeMounts:
    - {name: files, mountPath: /horovod/bin, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    {{- $holder := include "horovod.mountOf" (dict "mounts" .group.volumeMounts "path" $staging.path) | fromJson }}
    {{- range .group.volumeMounts }}
    {{- /* A mount that is read-only for the worker is writable here. */}}
    {{- $mount := ternary (omit . "readOnly") . (eq .mountPath $holder.mountPath) }}
    - {{ toYaml $mount | nindent 6 | trim }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "horovod.stagingVariables" -}}
{{- $staging := .Values.staging -}}
- {name: HOME, value: /tmp}
- {name: STAGING_PATH, value: {{ $staging.path | trimSuffix "/" | quote }}}
- {name: STAGING_KEY, value: {{ pick $staging "image" "command" "env" | toJson | sha256sum | trunc 16 | quote }}}
- {name: STAGING_OWNER, value: {{ printf "%s/%s" .Release.Namespace (include "horovod.fullname" .) | quote }}}
- {name: STAGING_VERIFY, value: {{ $staging.verify | quote }}}
{{- end }}
