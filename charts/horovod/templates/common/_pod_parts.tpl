{{/* What the pods of the master, the workers and TensorBoard share. */}}

{{/* Settings of the pod spec. */}}
{{- define "horovod.podSettings" -}}
enableServiceLinks: false
{{- with .facts.values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .facts.values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .facts.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
securityContext:
  {{- list .facts.values.podSecurityContext | include "horovod.layered" | fromJson | toYaml | nindent 2 }}
{{- end }}

{{/*
Fields of the pod spec that the values of a group or of the master add. horovod.checkPodFields refuses
fields that the chart sets itself. Call with a group or with .facts.values.master.
*/}}
{{- define "horovod.addedPodFields" -}}
{{- if not (kindIs "invalid" .terminationGracePeriodSeconds) }}
terminationGracePeriodSeconds: {{ int .terminationGracePeriodSeconds }}
{{- end }}
{{- with .podSpec }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The same for the main container. */}}
{{- define "horovod.addedContainerFields" -}}
{{- with .envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .container }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Containers that the user adds, with the chart's security context where they have none, so that Pod Security
admits them.
Call with (dict "root" $ "containers" $list).
*/}}
{{- define "horovod.addedContainers" -}}
{{- $context := .root.facts.values.securityContext -}}
{{- range .containers }}
{{- $container := deepCopy . }}
{{- if not (hasKey . "securityContext") }}{{- $_ := set $container "securityContext" $context }}{{- end }}
- {{ toYaml $container | nindent 2 | trim }}
{{- end }}
{{- end }}

{{/*
CPU and memory of an init container. They equal the main container's, so that the pod requests no more and may
be of class Guaranteed.
*/}}
{{- define "horovod.initResources" -}}
{{- $resources := dict -}}
{{- range $side, $amounts := pick . "limits" "requests" -}}
  {{- with pick ($amounts | default dict) "cpu" "memory" -}}{{- $_ := set $resources $side . -}}{{- end -}}
{{- end -}}
{{- with $resources -}}
resources:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{/*
The command of a container that runs a script of a shell with a command as its arguments. The script is in the
pod's template, because the image may have no Python.
Call with (dict "root" $ "script" "worker/stage.sh" "command" $list).
*/}}
{{- define "horovod.scriptCommand" -}}
{{- $text := .root.Files.Get (printf "files/hvd_pods/%s" .script) | replace "$" "$$" -}}
{{ concat (list "sh" "-c" $text (base .script)) .command | toYaml }}
{{- end }}

{{/* What the chart mounts in the master or in a worker. Call with (dict "root" $ "component" "worker"). */}}
{{- define "horovod.chartMounts" -}}
{{- $hasCode := .root.facts.code.version -}}
- {name: archive, mountPath: /horovod/archive, readOnly: true}
- {name: programs, mountPath: /horovod/bin/hvd_pods}
- {name: generated, mountPath: /horovod/generated}
- {name: keys, mountPath: /horovod/keys, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if $hasCode }}
{{- /* Pods unpack the code there: it may exceed the volume in memory. */}}
- {name: tmp, mountPath: /horovod/code, subPath: horovod-code}
{{- end }}
{{- if eq .component "worker" }}
- {name: shm, mountPath: /dev/shm}
{{- else if $hasCode }}
- {name: code, mountPath: /horovod/code-source, readOnly: true}
{{- end }}
{{- end }}

{{/* Their volumes. Call with (dict "root" $ "component" "worker"). */}}
{{- define "horovod.chartVolumes" -}}
{{- $facts := .root.facts -}}
- {name: archive, configMap: {name: {{ quote $facts.programs.configMap }}}}
- {name: programs, emptyDir: {medium: Memory, sizeLimit: 8Mi}}
- {name: generated, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
- {name: tmp, emptyDir: {}}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      {{- include "horovod.keySources" . | nindent 6 }}
{{- if eq .component "worker" }}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ quote $facts.values.shm.sizeLimit }}}}
{{- else if $facts.code.version }}
- {name: code, configMap: {name: {{ quote $facts.code.configMap }}}}
{{- end }}
{{- end }}

{{/*
The sources of the volume `keys`: the pod's certificate and key, and the authority of its peers. The kubelet
holds a pod back until the Secrets have them, but not the master that may make them.
Call with (dict "root" $ "component" "worker").
*/}}
{{- define "horovod.keySources" -}}
{{- $isOptional := and .root.facts.keys.masterMayMake (eq .component "master") -}}
{{- range $owner, $secret := .root.facts.keys.secrets }}
- secret:
    name: {{ quote $secret }}
    {{- if $isOptional }}
    optional: true
    {{- end }}
    items:
      {{- if eq $owner $.component }}
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      {{- else }}
      - {key: ca.crt, path: peer-ca.crt}
      {{- end }}
{{- end }}
{{- end }}

{{/*
The volume mount that contains a path, as JSON; {} when none does.
Call with (dict "mounts" $list "path" $path).
*/}}
{{- define "horovod.mountOf" -}}
{{- $path := include "horovod.cleanPath" .path -}}
{{- $longest := dict -}}
{{- range .mounts -}}
  {{- $point := trimSuffix "/" .mountPath -}}
  {{- $contains := or (eq $path $point) (hasPrefix (printf "%s/" $point) $path) -}}
  {{- if and $contains (gt (len $point) (len (dig "mountPath" "" $longest))) -}}
    {{- $longest = . -}}
  {{- end -}}
{{- end -}}
{{- toJson $longest -}}
{{- end }}

{{/*
The mounts of a container that has a /tmp of its own, as YAML. A /tmp of the user's is that of the ranks,
unless the container works there.
Call with (dict "mounts" $list "at" $mount "tmp" $mount): it works `at` one of the mounts, and mounts it so.
*/}}
{{- define "horovod.mountsBesideTmp" -}}
{{- $mounts := list .tmp -}}
{{- range .mounts -}}
  {{- if ne .mountPath "/tmp" -}}{{- $mounts = append $mounts . -}}{{- end -}}
{{- end -}}
{{- include "horovod.uniqueItems" (dict "items" (append $mounts .at) "key" "mountPath") -}}
{{- end }}

{{/*
The items with each key once, as YAML; the last one of a key wins, in the place of the first.
Call with (dict "items" $list "key" "name").
*/}}
{{- define "horovod.uniqueItems" -}}
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

{{/* Node selector, affinity and tolerations. Call with a map that has these, such as a worker group. */}}
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
The pod template of a Job or StatefulSet that the upgrade keeps, without what the Job controller adds. Call
with the object.
*/}}
{{- define "horovod.keptTemplate" -}}
{{- $template := .spec.template -}}
{{- $labels := omit $template.metadata.labels "controller-uid" "job-name" -}}
{{- $labels = omit $labels "batch.kubernetes.io/controller-uid" "batch.kubernetes.io/job-name" -}}
{{- $metadata := merge (dict "labels" $labels) (pick $template.metadata "annotations") -}}
{{- dict "metadata" $metadata "spec" $template.spec | toYaml -}}
{{- end }}
