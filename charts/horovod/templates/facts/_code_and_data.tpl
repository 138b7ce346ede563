{{/* The user's code and command, and the directories of data, output and logs. */}}

{{/*
The user's code: files of the release that the master hands to the workers (hvd_pods/master/user_code.py).
  code.files      the files by name
  code.size       their bytes
  code.version    a hash of the code; like the next two empty without code
  code.sha256     the hash of what `sha256sum` prints of the ConfigMap's keys: the master's pod has it in its
                  template, and runs no other code (hvd_pods/pod/code_archive.py)
  code.configMap  the ConfigMap with the code
*/}}
{{- define "horovod.prepareCode" -}}
{{- $archive := .facts.values.code.archive -}}
{{- $text := include "horovod.flattenFiles" (dict "files" .facts.values.code.files "prefix" "") -}}
{{- $files := fromJson $text -}}
{{- $size := len $archive -}}
{{- range $files -}}{{- $size = add $size (len .) -}}{{- end -}}
{{- $code := dict -}}
{{- $_ := set $code "files" $files -}}
{{- $_ := set $code "size" (int $size) -}}
{{- $_ := set $code "version" "" -}}
{{- $_ := set $code "sha256" "" -}}
{{- $_ := set $code "configMap" "" -}}
{{- if or .facts.values.code.files $archive -}}
  {{- $version := printf "%s %s" $text $archive | sha256sum | trunc 10 -}}
  {{- $sums := include "horovod.codeSums" (dict "files" $files "archive" $archive) -}}
  {{- $_ := set $code "version" $version -}}
  {{- $_ := set $code "sha256" (sha256sum $sums) -}}
  {{- $_ := set $code "configMap" (printf "%s-code-%s" .facts.fullname $version) -}}
{{- end -}}
{{- $_ := set .facts "code" $code -}}
{{- end }}

{{/*
The content of the ConfigMap with the code.
  code.data       the files that are text
  code.binaryData  the archive and the other files, in base64
*/}}
{{- define "horovod.prepareCodeData" -}}
{{- $code := .facts.code -}}
{{- $_ := set $code "data" dict -}}
{{- $_ := set $code "binaryData" dict -}}
{{- /* A text with characters that YAML cannot have, and that JSON does not escape, is binary data. */ -}}
{{- $binary := "[\\x{7f}-\\x{9f}\\x{feff}\\x{fffe}\\x{ffff}]" -}}
{{- range $name, $content := $code.files -}}
  {{- if regexMatch $binary $content -}}
    {{- $_ := set $code.binaryData $name (b64enc $content) -}}
  {{- else -}}
    {{- $_ := set $code.data $name $content -}}
  {{- end -}}
{{- end -}}
{{- with .facts.values.code.archive -}}
  {{- $_ := set $code.binaryData "archive.tgz" (nospace .) -}}
{{- end -}}
{{- end }}

{{/*
The files by name, as JSON. An unquoted `--set-file code.files.train\.py=train.py` loses its backslash in the
shell, and Helm then makes {train: {py: ...}} of it.
Call with (dict "files" $map "prefix" "").
*/}}
{{- define "horovod.flattenFiles" -}}
{{- $prefix := .prefix -}}
{{- $files := dict -}}
{{- range $name, $content := .files -}}
  {{- if kindIs "map" $content -}}
    {{- $nested := include "horovod.flattenFiles"
      (dict "files" $content "prefix" (printf "%s%s." $prefix $name)) -}}
    {{- $files = merge $files ($nested | fromJson) -}}
  {{- else -}}
    {{- $_ := set $files (printf "%s%s" $prefix $name) (toString $content) -}}
  {{- end -}}
{{- end -}}
{{ toJson $files }}
{{- end }}

{{/* What `sha256sum` prints of the files. Call with (dict "files" $map "archive" $base64). */}}
{{- define "horovod.codeSums" -}}
{{- $files := deepCopy .files -}}
{{- with .archive -}}{{- $_ := set $files "archive.tgz" (nospace . | b64dec) -}}{{- end -}}
{{- range $name, $content := $files }}
{{- printf "%s  %s\n" (sha256sum $content) $name -}}
{{- end -}}
{{- end }}

{{/*
  command         the training command
  outputPath      OUTPUT_PATH of the ranks
  logDir          what TensorBoard reads
*/}}
{{- define "horovod.prepareScript" -}}
{{- /* A single Python file is the command itself. */ -}}
{{- $files := keys .facts.code.files -}}
{{- $command := .facts.values.master.args -}}
{{- $hasArchive := not (empty .facts.values.code.archive) -}}
{{- $isOneScript := and (eq (len $files) 1) (hasSuffix ".py" (first $files)) (not $hasArchive) -}}
{{- if and $isOneScript (not $command) (ne .facts.values.launch.mode "custom") -}}
  {{- $command = list "python3" (first $files) -}}
{{- end -}}
{{- $variable := dict "env" .facts.values.worker.env "name" "OUTPUT_PATH" -}}
{{- $output := (include "horovod.envEntry" $variable | fromJson).value | default "" -}}
{{- $_ := set .facts "command" $command -}}
{{- $_ := set .facts "outputPath" $output -}}
{{- $_ := set .facts "logDir" (.facts.values.tensorboard.logDir | default $output) -}}
{{- end }}

{{/*
The user's mounts. The last one of a path wins, so that a group's replaces the release's. The values keep what
the user wrote, of which the hashes are made.
  mounts          the entries of volumeMounts with clean paths
  groups[].mounts  the same of the group
*/}}
{{- define "horovod.prepareCleanMounts" -}}
{{- $_ := set .facts "mounts" (include "horovod.cleanMounts" .facts.values.volumeMounts | fromYamlArray) -}}
{{- range $group := .facts.groups -}}
  {{- $_ := set $group "mounts" (include "horovod.cleanMounts" .volumeMounts | fromYamlArray) -}}
{{- end -}}
{{- end }}

{{/* Mounts with clean paths, each path once, as YAML. Call with a list of mounts. */}}
{{- define "horovod.cleanMounts" -}}
{{- $mounts := list -}}
{{- range . -}}
  {{- $path := include "horovod.cleanPath" .mountPath -}}
  {{- $mounts = append $mounts (merge (dict "mountPath" $path) .) -}}
{{- end -}}
{{- include "horovod.uniqueItems" (dict "items" $mounts "key" "mountPath") -}}
{{- end }}

{{/* A path as the kubelet reads it: absolute, and without needless slashes and dots. Empty for no path. */}}
{{- define "horovod.cleanPath" -}}
{{- with . -}}{{- printf "/%s" . | clean -}}{{- end -}}
{{- end }}

{{/*
The mounts that contain these directories; {} where none does.
  stagingPath     the directory that staging.command fills
  groups[].stagingMount  the group's mount that contains it
  groups[].outputMount  the group's mount that contains outputPath
  logMount        the release's mount that contains logDir
*/}}
{{- define "horovod.prepareMounts" -}}
{{- $facts := .facts -}}
{{- $_ := set $facts "stagingPath" (include "horovod.cleanPath" $facts.values.staging.path) -}}
{{- range $group := $facts.groups -}}
  {{- $staged := dict "mounts" .mounts "path" $facts.stagingPath -}}
  {{- $written := dict "mounts" .mounts "path" $facts.outputPath -}}
  {{- $_ := set $group "stagingMount" (include "horovod.mountOf" $staged | fromJson) -}}
  {{- $_ := set $group "outputMount" (include "horovod.mountOf" $written | fromJson) -}}
{{- end -}}
{{- $logged := dict "mounts" $facts.mounts "path" $facts.logDir -}}
{{- $_ := set $facts "logMount" (include "horovod.mountOf" $logged | fromJson) -}}
{{- end }}

{{/*
Where the cluster has a list of the nodes that have a group's data: a ConfigMap whose keys are the nodes
(hvd_pods/cluster/staged.py writes it). Its name is a hash of the source and the directory, so that later runs
and other releases of the namespace share it.
  stagingKey      a hash of the source of the data
  groups[].staged  the ConfigMap of the group's data; empty without one
  nodeLists       these ConfigMaps of all groups
*/}}
{{- define "horovod.prepareStaging" -}}
{{- $facts := .facts -}}
{{- $staging := $facts.values.staging -}}
{{- $key := pick $staging "image" "command" "env" | toJson | sha256sum | trunc 16 -}}
{{- $lists := list -}}
{{- range $group := $facts.groups -}}
  {{- $mount := .stagingMount -}}
  {{- $staged := "" -}}
  {{- if and $staging.command (ne $staging.nodes "Any") (not $mount.subPathExpr) -}}
    {{- range .volumes -}}
      {{- if and (eq .name $mount.name) .hostPath -}}
        {{- $below := trimPrefix (trimSuffix "/" $mount.mountPath) $facts.stagingPath -}}
        {{- $directory := printf "%s/%s/%s" .hostPath.path ($mount.subPath | default "") $below | clean -}}
        {{- $staged = printf "%s %s" $directory $key | sha256sum | trunc 10 | printf "horovod-staged-%s" -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $group "staged" $staged -}}
  {{- $lists = append $lists $staged | uniq -}}
{{- end -}}
{{- $_ := set $facts "stagingKey" $key -}}
{{- $_ := set $facts "nodeLists" (without $lists "") -}}
{{- end }}
