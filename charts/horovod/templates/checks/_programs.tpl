{{/* Refusals about the programs of the pods. */}}

{{- define "horovod.checkPrograms" -}}
{{- if not (.Subcharts.programs.Files.Get "programs.tgz") -}}
  {{- include "horovod.refuse" (dict
    "what" "the chart has no charts/programs/programs.tgz, the programs of its pods"
    "do" "take the chart from its repository again") -}}
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
