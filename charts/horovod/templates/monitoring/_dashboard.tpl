{{/*
The dashboard of files/dashboard.json as JSON, which shows this run first. Its variables offer other runs,
too. Grafana takes one dashboard for each UID.
*/}}
{{- define "horovod.dashboard" -}}
{{- $name := printf "%s/%s" .Release.Namespace .facts.fullname -}}
{{- $shown := dict "namespace" .Release.Namespace "release" .facts.fullname -}}
{{- $board := .Files.Get "files/dashboard.json" | fromJson -}}
{{- $_ := set $board "uid" (sha1sum $name) -}}
{{- $_ := set $board "title" (printf "hvdchart: %s in %s" .facts.fullname .Release.Namespace) -}}
{{- range $variable := $board.templating.list -}}
  {{- with get $shown $variable.name -}}
    {{- $_ := set $variable "current" (dict "text" . "value" .) -}}
  {{- end -}}
{{- end -}}
{{- toJson $board -}}
{{- end }}
