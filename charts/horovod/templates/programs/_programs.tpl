{{/* The programs of the pods, files/hvd_pods: their ConfigMaps, volumes and mounts. */}}

{{/*
The ConfigMaps of the programs, one for each folder of files/hvd_pods. They are named after the content of all folders
and immutable, so that a pod never sees the programs of another chart version. A folder's name follows this name.
*/}}
{{- define "horovod.filesConfigMap" -}}
{{ include "horovod.once" (dict "root" . "name" "horovod.filesConfigMapName") }}
{{- end }}

{{- define "horovod.filesConfigMapName" -}}
{{- /* Hashes each file: AsConfig, which every pod template would repeat, takes most of the time to render. */ -}}
{{- $content := "" -}}
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
