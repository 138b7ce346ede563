{{/* The programs of the pods, as one archive in a ConfigMap (docs/adr/0027-programs-as-one-archive.md). */}}

{{- define "horovod.preparePrograms" -}}
{{- $hash := .Subcharts.programs.Files.Get "programs.tgz" | sha256sum -}}
{{- /* Named after its content and immutable, so that a pod never sees the programs of another chart
version. */ -}}
{{- $configMap := printf "%s-files-%s" .facts.fullname (trunc 8 $hash) -}}
{{- /* Kubernetes turns $$ into $. */ -}}
{{- $unpack := .Files.Get "files/unpack.py" | replace "$" "$$" -}}
{{- $command := list "python3" "-I" "-S" "-c" $unpack $hash -}}
{{- $_ := set .facts "programs" (dict "configMap" $configMap "command" $command) -}}
{{- end }}

{{- define "horovod.findKeptPrograms" -}}
{{- $mounted := list -}}
{{- range append (values .facts.sets) .facts.job -}}
  {{- range dig "spec" "template" "spec" "volumes" list . -}}
    {{- with .configMap -}}{{- $mounted = append $mounted .name -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $kept := list -}}
{{- range without ($mounted | uniq | sortAlpha) .facts.programs.configMap -}}
  {{- if hasPrefix (printf "%s-files-" $.facts.fullname) . -}}
    {{- with lookup "v1" "ConfigMap" $.Release.Namespace . -}}{{- $kept = append $kept . -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .facts "keptPrograms" $kept -}}
{{- end }}
