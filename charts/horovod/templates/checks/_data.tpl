{{/* Refusals about staged data, and about results that the master stores. */}}

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
{{- $isStaged := not (empty .facts.values.staging.command) -}}
{{- range ternary .facts.groups list $isStaged -}}
  {{- if not .stagingMount -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "staging.path is %q but no entry of volumeMounts contains it (group %q)" $path .name)
      "why" "staged data must be on a volume") -}}
  {{- end -}}
  {{- if eq $path (trimSuffix "/" .stagingMount.mountPath) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "staging.path %q is a volumeMounts[].mountPath itself (group %q)" $path .name)
      "why" "a mount cannot be replaced atomically"
      "do" "name a directory below it") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkResults" -}}
{{- $results := .facts.values.results -}}
{{- if and $results.command (not (trimSuffix "/" .facts.resultsPath)) -}}
  {{- include "horovod.refuse" (dict
    "what" "results.command is set but results.path is empty and worker.env has no OUTPUT_PATH"
    "do" "set results.path to the directory to store") -}}
{{- end -}}
{{- range $key, $value := omit $results "command" -}}
  {{- if and $value (not $results.command) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "results.%s is set but results.command is empty" $key)
      "do" "set the command that stores them") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkResultsMount" -}}
{{- $path := trimSuffix "/" .facts.resultsPath -}}
{{- $place := printf "the results are in %q (results.path or OUTPUT_PATH)" $path -}}
{{- $isStored := not (empty .facts.values.results.command) -}}
{{- if and $isStored (not .facts.resultsMount) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "%s but no entry of volumeMounts contains it" $place)
    "why" "the master stores only what is on a volume") -}}
{{- end -}}
{{- range ternary .facts.values.volumes list $isStored -}}
  {{- if and (eq .name $.facts.resultsMount.name) (hasKey . "emptyDir") -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s, on the emptyDir %q" $place .name)
      "why" "each pod has its own"
      "do" "use a volume that the master and the workers share") -}}
  {{- end -}}
{{- end -}}
{{- end }}
