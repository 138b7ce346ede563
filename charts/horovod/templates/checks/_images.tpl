{{/* Refusals of images. */}}

{{/* There is no default image: no public registry has one with everything that the chart needs. */}}
{{- define "horovod.checkImages" -}}
{{- $images := dict "master" .facts.values.master.image -}}
{{- range .facts.groups -}}{{- $_ := set $images .valuesKey .image -}}{{- end -}}
{{- if .facts.values.tensorboard.enabled -}}
  {{- $_ := set $images "tensorboard" .facts.values.tensorboard.image -}}
{{- end -}}
{{- $default := .facts.values.image.repository -}}
{{- range $owner, $image := $images -}}
  {{- if not (or $image.repository $default) -}}
    {{- $example := "--set image.repository=registry.example/team/app --set image.tag=1.0" -}}
    {{- $build := "docs/images.md of the chart's repository shows how to build one" -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "image.repository and %s.image.repository are empty" $owner)
      "do" (printf "set one of them to an image with Python 3, such as %s; %s" $example $build)) -}}
  {{- end -}}
{{- end -}}
{{- end }}
