{{/* References of images. */}}

{{/*
The image and its pull policy. With a digest, the tag is for the reader only: the kubelet uses the digest.
Call with (dict "root" $ "image" $overrides).
*/}}
{{- define "horovod.image" -}}
{{- $images := dict "image" .root.facts.values.image "overrides" .image -}}
{{- $image := include "horovod.mergedImage" $images | fromJson -}}
{{- $tag := ternary "" .root.Chart.AppVersion (not (empty $image.digest)) -}}
{{- $reference := $image.repository -}}
{{- with $image.tag | default $tag -}}{{- $reference = printf "%s:%s" $reference . -}}{{- end -}}
{{- with $image.digest -}}{{- $reference = printf "%s@%s" $reference . -}}{{- end -}}
image: {{ $reference | quote }}
imagePullPolicy: {{ $image.pullPolicy | quote }}
{{- end }}

{{/*
An image with some keys overridden, as JSON. A digest belongs to its repository and tag, so that overriding
one of these drops it, and a new digest drops the tag.
Call with (dict "image" $image "overrides" $overrides).
*/}}
{{- define "horovod.mergedImage" -}}
{{- $image := deepCopy (.image | default dict) -}}
{{- $overrides := .overrides | default dict -}}
{{- if or $overrides.repository $overrides.tag $overrides.digest -}}
  {{- $image = omit $image "digest" -}}
{{- end -}}
{{- if $overrides.digest -}}{{- $image = omit $image "tag" -}}{{- end -}}
{{- range $key, $value := $overrides -}}
  {{- with $value -}}{{- $_ := set $image $key . -}}{{- end -}}
{{- end -}}
{{ toJson $image }}
{{- end }}
