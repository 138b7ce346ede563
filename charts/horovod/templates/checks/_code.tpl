{{/* Refusals of the user's code, and of the chart's programs, which Helm stores with it. */}}

{{- define "horovod.checkPrograms" -}}
{{- if not (.Subcharts.programs.Files.Get "programs.tgz") -}}
  {{- include "horovod.refuse" (dict
    "what" "the chart has no charts/programs/programs.tgz, the programs of its pods"
    "do" "take the chart from its repository again") -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkCode" -}}
{{- $archive := .facts.values.code.archive -}}
{{- $size := .facts.code.size -}}
{{- $most := int .facts.shared.codeBytes -}}
{{- if gt $size $most -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "code.files and code.archive have %d bytes" $size)
    "why" "Helm stores them twice in a Secret of at most 1 MiB"
    "do" (printf "use at most %d, and put more into the image or onto a volume" $most)) -}}
{{- end -}}
{{- if and $archive (not (hasPrefix "H4sI" $archive)) -}}
  {{- $command := "tar -cz -C FOLDER . | base64 -w0 > code.b64" -}}
  {{- include "horovod.refuse" (dict
    "what" "code.archive is not a tar.gz in base64"
    "do" (printf "make it with `%s`, and pass it with --set-file code.archive=code.b64" $command)) -}}
{{- end -}}
{{- if and .facts.code.version (not .facts.command) -}}
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
{{- $most := sub .facts.shared.codeBytes (div $size 2) | max 0 | int -}}
{{- $code := .facts.code.size -}}
{{- if and $size (gt $code $most) -}}
  {{- $reason := "keeps the programs of another version of the chart" -}}
  {{- $remedy := "upgrade when the run has ended, or use the chart that it was installed with" -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "code.files and code.archive have %d bytes" $code)
    "why" (printf "the run that continues %s, which this upgrade stores, too" $reason)
    "do" (printf "use at most %d, %s" $most $remedy)) -}}
{{- end -}}
{{- end }}
