{{/*
The programs of the pods: one archive in a ConfigMap. `make generate` makes charts/programs/programs.tgz of files/hvd_pods
(docs/adr/0027-programs-as-one-archive.md).
*/}}

{{/*
The ConfigMap of the archive. It is named after its content and immutable, so that a pod never sees the programs of
another chart version.
*/}}
{{- define "horovod.filesConfigMap" -}}
{{ include "horovod.fullname" . }}-files-{{ include "horovod.programsHash" . | trunc 8 }}
{{- end }}

{{- define "horovod.programsHash" -}}
{{ include "horovod.once" (dict "root" . "name" "horovod.programsHashOfFile") }}
{{- end }}

{{- define "horovod.programsHashOfFile" -}}
{{- $archive := .Subcharts.programs.Files.Get "programs.tgz" -}}
{{- if not $archive -}}
{{- fail "the chart has no charts/programs/programs.tgz, the programs of its pods: take the chart from its repository again" -}}
{{- end -}}
{{ sha256sum $archive }}
{{- end }}

{{/*
The start of a container's command that checks and unpacks the programs: files/unpack.py. The arguments of the Python
that then takes its place follow. Kubernetes turns $$ into $.
*/}}
{{- define "horovod.unpackCommand" -}}
{{- $text := .Files.Get "files/unpack.py" | replace "$" "$$" -}}
{{ list "python3" "-I" "-S" "-c" $text (include "horovod.programsHash" .) | toJson }}
{{- end }}

{{/* The command of a container that runs a program. Call with (dict "root" $ "arguments" (list "-I" ...)). */}}
{{- define "horovod.programCommand" -}}
{{- $command := include "horovod.unpackCommand" .root | fromJsonArray -}}
{{ concat $command .arguments | toYaml }}
{{- end }}

{{/*
The command of a container that runs a script of a shell with a command as its arguments. The script is in the pod's
template, because the image may have no Python. Call with (dict "root" $ "script" "worker/stage.sh" "command" $list).
*/}}
{{- define "horovod.scriptCommand" -}}
{{- $text := .root.Files.Get (printf "files/hvd_pods/%s" .script) | replace "$" "$$" -}}
{{ concat (list "sh" "-c" $text (base .script)) .command | toYaml }}
{{- end }}

{{/* Mounts of the archive, and of the memory into which it is unpacked. */}}
{{- define "horovod.programMounts" -}}
- {name: archive, mountPath: /horovod/archive, readOnly: true}
- {name: programs, mountPath: /horovod/bin/hvd_pods}
{{- end }}

{{/* Their volumes. */}}
{{- define "horovod.programVolumes" -}}
- name: archive
  configMap: {name: {{ include "horovod.filesConfigMap" . | quote }}}
- name: programs
  emptyDir: {medium: Memory, sizeLimit: 8Mi}
{{- end }}
