{{/* What NOTES.txt says of the run. */}}

{{/* The ranks, the workers and the spares. */}}
{{- define "horovod.noteOfSize" -}}
{{- $ranks := int .facts.ranks -}}
{{- $workers := int .facts.workers -}}
{{- $spares := int .facts.spares -}}
{{- printf
  "%d %s on %d %s" $ranks (plural "rank" "ranks" $ranks) $workers (plural "worker" "workers" $workers) -}}
{{- if $spares -}}{{- printf ", with %d %s" $spares (plural "spare" "spares" $spares) -}}{{- end -}}
{{- end }}

{{/* How the run ended. */}}
{{- define "horovod.noteOfEnd" -}}
{{- $outcome := lower .facts.outcome -}}
{{- if .facts.jobIsGone -}}
  {{- $time := .facts.recordedEnd.time -}}
  {{- $reason := "" -}}
  {{- with .facts.recordedEnd.reason -}}{{- $reason = printf " (%s)" . -}}{{- end -}}
  {{- printf "This run %s at %s and its Job has been removed%s: nothing was started." $outcome $time $reason -}}
{{- else -}}
  {{- printf "This run %s under the Job %s: nothing was started." $outcome .facts.jobName -}}
{{- end -}}
{{- end }}

{{/* Where the results are. */}}
{{- define "horovod.noteOfResults" -}}
{{- $kubectl := printf "kubectl --namespace %s" .Release.Namespace -}}
{{- $path := .facts.resultsPath -}}
{{- if .Values.results.command -}}
When the training has finished, results.command stores what is in {{ $path }}. See what it prints:

  {{ $kubectl }} logs job/{{ .facts.jobName }} --container results
{{- else if not $path -}}
To keep files that the script writes, mount a volume, and name its directory as OUTPUT_PATH in worker.env.
{{- else -}}
Copy the results from a worker while it runs:

  {{ $kubectl }} cp {{ (first .facts.groups).statefulSet }}-0:{{ $path }} results
{{ if include "horovod.mountOf" (dict "mounts" (first .facts.groups).volumeMounts "path" $path) }}
They stay on the volume that is mounted there.
{{- else }}
No volume is mounted there: the results are gone with the workers.
{{- end }}
{{- end }}
{{- end }}

{{/* The nodes that have the staged data; empty where no node is known. */}}
{{- define "horovod.noteOfNodes" -}}
{{- $nodes := list -}}
{{- range .facts.groups -}}{{- $nodes = concat $nodes .stagedNodes | uniq -}}{{- end -}}
{{- $number := len $nodes -}}
{{- if $nodes -}}
{{- $others := ternary (printf " and others, %d in all" $number) "" (gt $number 8) -}}
Nodes that have the data of staging.path already: {{ slice $nodes 0 (min 8 $number) | join ", " }}{{ $others }}.
{{- if eq .Values.staging.nodes "Required" }}
Workers run on these nodes only.
{{- else }}
The scheduler prefers these nodes. A worker on another node fetches the data before it starts.
{{- end }}
{{- end }}
{{- end }}
