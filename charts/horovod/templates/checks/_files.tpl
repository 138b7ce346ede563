{{/* Refusals about programs, code, data and results. */}}
{{- define "horovod.checkFiles" -}}
{{- if not (.Subcharts.programs.Files.Get "programs.tgz") -}}
  {{- include "horovod.refuse" (dict
    "what" "the chart has no charts/programs/programs.tgz, the programs of its pods"
    "do" "take the chart from its repository again") -}}
{{- end -}}
{{- $staging := .facts.values.staging -}}
{{- if and $staging.command (not $staging.path) -}}
  {{- include "horovod.refuse" (dict
    "what" "staging.command is set but staging.path is empty"
    "do" "set it to the directory that the command fills") -}}
{{- end -}}
{{- if and $staging.path (not $staging.command) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "staging.path is %q but staging.command is empty" $staging.path)
    "do" "set the command that fills it") -}}
{{- end -}}
{{- if $staging.command -}}
  {{- $path := trimSuffix "/" $staging.path -}}
  {{- range .facts.groups -}}
    {{- $mount := include "horovod.mountOf" (dict "mounts" .volumeMounts "path" $path) | fromJson -}}
    {{- if not $mount -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "staging.path is %q but no entry of volumeMounts contains it (group %q)" $path .name)
        "why" "staged data must be on a volume") -}}
    {{- end -}}
    {{- if eq $path (trimSuffix "/" $mount.mountPath) -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "staging.path %q is a volumeMounts[].mountPath itself (group %q)" $path .name)
        "why" "a mount cannot be replaced atomically"
        "do" "name a directory below it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $results := .facts.values.results -}}
{{- if $results.command -}}
  {{- $path := .facts.resultsPath | trimSuffix "/" -}}
  {{- if not $path -}}
    {{- include "horovod.refuse" (dict
      "what" "results.command is set but results.path is empty and worker.env has no OUTPUT_PATH"
      "do" "set results.path to the directory to store") -}}
  {{- end -}}
  {{- $mounts := .facts.values.volumeMounts -}}
  {{- $mount := include "horovod.mountOf" (dict "mounts" $mounts "path" $path) | fromJson -}}
  {{- $where := printf "the results are in %q (results.path or OUTPUT_PATH)" $path -}}
  {{- if not $mount -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s but no entry of volumeMounts contains it" $where)
      "why" "the master stores only what is on a volume") -}}
  {{- end -}}
  {{- range .facts.values.volumes -}}
    {{- if and (eq .name $mount.name) (hasKey . "emptyDir") -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s, on the emptyDir %q" $where .name)
        "why" "each pod has its own"
        "do" "use a volume that the master and the workers share") -}}
    {{- end -}}
  {{- end -}}
{{- else -}}
  {{- range $key, $value := omit $results "command" -}}
    {{- with $value -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "results.%s is set but results.command is empty" $key)
        "do" "set the command that stores them") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $code := .facts.values.code -}}
{{- $size := .facts.code.size -}}
{{- $most := int .facts.shared.codeCharacters -}}
{{- if gt $size $most -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "code.files and code.archive have %d characters" $size)
    "why" "Helm stores them twice in a Secret of at most 1 MiB"
    "do" (printf "use at most %d, and put more into the image or onto a volume" $most)) -}}
{{- end -}}
{{- if and $code.archive (not (hasPrefix "H4sI" $code.archive)) -}}
  {{- $command := "tar -cz -C FOLDER . | base64 -w0 > code.b64" -}}
  {{- include "horovod.refuse" (dict
    "what" "code.archive is not a tar.gz in base64"
    "do" (printf "make it with `%s`, and pass it with --set-file code.archive=code.b64" $command)) -}}
{{- end -}}
{{- if and .facts.code.version (eq (.facts.command | len) 0) -}}
  {{- include "horovod.refuse" (dict
    "what" "code is set but master.args is empty"
    "do" "set it to the training command, such as [python, train.py]") -}}
{{- end -}}
{{- end }}

{{/* Helm stores the user's code twice, and an archive of programs, which it cannot compress, once. */}}
{{- define "horovod.checkKeptPrograms" -}}
{{- $size := 0 -}}
{{- range .facts.keptPrograms -}}
  {{- range .binaryData -}}{{- $size = add $size (len .) -}}{{- end -}}
{{- end -}}
{{- $most := sub .facts.shared.codeCharacters (div $size 2) | max 0 | int -}}
{{- $code := .facts.code.size -}}
{{- if and $size (gt $code $most) -}}
  {{- $kept := "keeps the programs of another version of the chart" -}}
  {{- $others := "upgrade when the run has ended, or use the chart that it was installed with" -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "code.files and code.archive have %d characters" $code)
    "why" (printf "the run that continues %s, which this upgrade stores, too" $kept)
    "do" (printf "use at most %d, %s" $most $others)) -}}
{{- end -}}
{{- end }}
