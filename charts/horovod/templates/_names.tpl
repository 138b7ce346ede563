{{/* Names, labels and selectors of this chart's objects. */}}

{{/*
The prefix of all object names: the release's name. With nameOverride, and as a dependency with an alias, it is
followed by that name, so that two dependencies of one release have different names. As in charts that `helm create`
makes, nameOverride is left out when the release's name contains it.
*/}}
{{- define "horovod.fullname" -}}
{{- $alias := ternary "" .Chart.Name (eq .Chart.Name "horovod") -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if .Values.nameOverride -}}
{{- $suffix := printf "-%s" .Values.nameOverride -}}
{{ .Release.Name }}{{ if not (contains .Values.nameOverride .Release.Name) }}{{ $suffix }}{{ end }}
{{- else if $alias -}}
{{ printf "%s-%s" .Release.Name $alias }}
{{- else -}}
{{ .Release.Name }}
{{- end -}}
{{- end }}

{{/* The name label, which tells two dependencies of one release apart. */}}
{{- define "horovod.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* The headless Service. A host's name is POD.SERVICE. */}}
{{- define "horovod.service" -}}
{{ include "horovod.fullname" . }}
{{- end }}

{{/* The Secret with the SSH keys. Each generation of the chart's own has another name. */}}
{{- define "horovod.sshSecret" -}}
{{- $suffix := ternary "" (printf "-%d" (int .Values.ssh.generation)) (eq (int .Values.ssh.generation) 1) -}}
{{ .Values.ssh.existingSecret | default (printf "%s-ssh%s" (include "horovod.fullname" .) $suffix) }}
{{- end }}

{{/*
The ConfigMaps with the programs of the pods, one for each folder of files/hvd_pods. They are named after their content
and immutable, so that a pod never sees the programs of another chart version. The name ends with the folder's.
*/}}
{{- define "horovod.filesConfigMap" -}}
{{ include "horovod.once" (dict "root" . "name" "horovod.filesConfigMapName") }}
{{- end }}

{{- define "horovod.filesConfigMapName" -}}
{{- /* Hashes each file: AsConfig, which every pod template would repeat, takes most of the time to render. */ -}}
{{- $content := include "horovod.passwdFile" . -}}
{{- range $path, $file := .Files.Glob "files/hvd_pods/*/*" -}}
{{- $content = printf "%s %s %s" $content $path (toString $file | sha256sum) -}}
{{- end -}}
{{ include "horovod.fullname" . }}-files-{{ $content | sha256sum | trunc 8 }}
{{- end }}

{{/* The data of the ConfigMap of a folder. Call with (dict "root" $ "folder" "master"). */}}
{{- define "horovod.files" -}}
{{- $files := .root.Files -}}
{{- range $path, $_ := $files.Glob (printf "files/hvd_pods/%s/*" .folder) }}
{{ base $path }}: {{ $files.Get $path | toJson }}
{{- end }}
{{- if eq .folder "common" }}
{{- with include "horovod.passwdFile" .root }}
{{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Mounts of folders of programs. Call with the folders, separated by spaces. */}}
{{- define "horovod.programMounts" -}}
{{- range splitList " " . }}
- {name: {{ printf "programs-%s" . }}, mountPath: {{ printf "/horovod/bin/hvd_pods/%s" . }}, readOnly: true}
{{- end }}
{{- end }}

{{/* Their volumes. Call with (dict "root" $ "folders" "common master"). */}}
{{- define "horovod.programVolumes" -}}
{{- $name := include "horovod.filesConfigMap" .root -}}
{{- range splitList " " .folders }}
- name: {{ printf "programs-%s" . }}
  configMap: {name: {{ printf "%s-%s" $name . | quote }}}
{{- end }}
{{- end }}

{{/* The line of the ConfigMap with the /etc/passwd of pods; empty where the pods have another. */}}
{{- define "horovod.passwdFile" -}}
{{- if eq (include "horovod.passwdFrom" .) "programs-common" -}}
passwd: {{ include "horovod.passwd" . | printf "%s\n" | quote }}
{{- end }}
{{- end }}

{{/* The master's ServiceAccount; empty when the master has no access to the API. */}}
{{- define "horovod.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (printf "%s-master" (include "horovod.fullname" .)) }}
{{- else -}}
{{ .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{/* Selector labels; call with (dict "root" $ "component" "worker"). */}}
{{- define "horovod.selector" -}}
{{ include "horovod.runSelector" .root }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{/* The selector of the workers as the API takes it in a query: KEY=VALUE,... */}}
{{- define "horovod.workerSelector" -}}
{{- $terms := list -}}
{{- range $key, $value := include "horovod.selector" (dict "root" . "component" "worker") | fromYaml -}}
{{- $terms = append $terms (printf "%s=%s" $key $value) -}}
{{- end -}}
{{ join "," $terms }}
{{- end }}

{{/* Labels of every object, but not of pod templates, where the chart's version would replace pods on an upgrade. */}}
{{- define "horovod.labels" -}}
{{ include "horovod.runSelector" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* Labels that all objects and pods of the release share. */}}
{{- define "horovod.runSelector" -}}
app.kubernetes.io/name: {{ include "horovod.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Selects the master and the workers, but not TensorBoard. */}}
{{- define "horovod.ownPods" -}}
matchLabels:
  {{- include "horovod.runSelector" . | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [master, worker]}
{{- end }}
