{{/* Staging: filling a volume before the workers start, and placing them where the data are. */}}

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
The name of the ConfigMap whose keys are the nodes that have the data (hvd_pods/cluster/staged.py writes it);
empty when the data are not in a directory of a node. It is a hash of the source and the directory, so that
later runs and other releases of the namespace share it.
Call with (dict "root" $ "group" $group).
*/}}
{{- define "horovod.nodeList" -}}
{{- $staging := .root.Values.staging -}}
{{- $directory := "" -}}
{{- if and $staging.command (ne $staging.nodes "Any") -}}
  {{- $path := trimSuffix "/" $staging.path -}}
  {{- $mount := include "horovod.mountOf" (dict "mounts" .group.volumeMounts "path" $path) | fromJson -}}
  {{- $below := trimPrefix (trimSuffix "/" $mount.mountPath) $path -}}
  {{- range .group.volumes -}}
    {{- if and (eq .name $mount.name) .hostPath (not $mount.subPathExpr) -}}
      {{- $directory = printf "%s/%s/%s" .hostPath.path ($mount.subPath | default "") $below | clean -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if $directory -}}
horovod-staged-{{ include "horovod.stagingKey" .root | printf "%s %s" $directory | sha256sum | trunc 10 }}
{{- end -}}
{{- end }}

{{/*
A worker's pod spec with a node affinity for nodes, as YAML.
Call with (dict "root" $ "pod" $podSpec "nodes" $list); the list has a node. The nodes are selected by their
names, from which the label kubernetes.io/hostname may differ. A field selector takes one name, so that each
node is a term of its own.
*/}}
{{- define "horovod.placeOnNodes" -}}
{{- $pod := fromYaml .pod -}}
{{- $affinity := $pod.affinity | default dict -}}
{{- $ofNodes := $affinity.nodeAffinity | default dict -}}
{{- $fields := list -}}
{{- range .nodes -}}
  {{- $fields = append $fields (dict "key" "metadata.name" "operator" "In" "values" (list .)) -}}
{{- end -}}
{{- if eq .root.Values.staging.nodes "Required" -}}
  {{- include "horovod.requireNodes" (dict "into" $ofNodes "fields" $fields) -}}
{{- else -}}
  {{- include "horovod.preferNodes" (dict "into" $ofNodes "fields" $fields) -}}
{{- end -}}
{{ set $affinity "nodeAffinity" $ofNodes | set $pod "affinity" | toYaml }}
{{- end }}

{{/*
Changes `into`, a node affinity, so that a node must match one of the fields. Terms are alternatives, so that
each term that the user gave is repeated with each field.
*/}}
{{- define "horovod.requireNodes" -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $given := dig $key "nodeSelectorTerms" (list dict) .into -}}
{{- $terms := list -}}
{{- range $field := .fields -}}
  {{- range $given -}}
    {{- $terms = append $terms
      (set (deepCopy .) "matchFields" (append (.matchFields | default list) $field)) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .into $key (dict "nodeSelectorTerms" $terms) -}}
{{- end }}

{{/* Changes `into`, a node affinity, so that the scheduler prefers nodes that match one of the fields. */}}
{{- define "horovod.preferNodes" -}}
{{- $key := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $terms := get .into $key | default list -}}
{{- range .fields -}}
  {{- $terms = append $terms (dict "weight" 100 "preference" (dict "matchFields" (list .))) -}}
{{- end -}}
{{- $_ := set .into $key $terms -}}
{{- end }}
