{{/*
The dashboard of files/dashboard.json as JSON, which shows this run first. Its variables offer other runs, too.
Grafana takes one dashboard for each UID.
*/}}
{{- define "horovod.dashboard" -}}
{{- $name := printf "%s/%s" .Release.Namespace .facts.fullname -}}
{{- $shown := dict "namespace" .Release.Namespace "release" .facts.fullname -}}
{{- $board := .Files.Get "files/dashboard.json" | fromJson -}}
{{- $_ := sha1sum $name | set $board "uid" -}}
{{- $_ := printf "hvdchart: %s in %s" .facts.fullname .Release.Namespace | set $board "title" -}}
{{- range $variable := $board.templating.list -}}
  {{- with get $shown $variable.name -}}{{- $_ := dict "text" . "value" . | set $variable "current" -}}{{- end -}}
{{- end -}}
{{- toJson $board -}}
{{- end }}
