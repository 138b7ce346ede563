{{/* Refusals about staged data. */}}

{{- define "horovod.checkStaging" -}}
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
{{- end }}

{{- define "horovod.checkStagingMounts" -}}
{{- $path := .facts.stagingPath -}}
{{- if .facts.values.staging.command -}}
  {{- range .facts.groups -}}
    {{- /* Without groups, only the release has mounts. */ -}}
    {{- $mounts := ternary "volumeMounts" (printf "%s.volumeMounts" .valuesKey) (eq .valuesKey "worker") -}}
    {{- if not .stagingMount -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "staging.path is %q but no entry of %s contains it" $path $mounts)
        "why" "staged data must be on a volume") -}}
    {{- end -}}
    {{- if eq $path .stagingMount.mountPath -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "staging.path is %q but an entry of %s has that mountPath" $path $mounts)
        "why" "a mount cannot be replaced atomically"
        "do" "name a directory below it") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
