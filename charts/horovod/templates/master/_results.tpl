{{/*
The sidecar that stores the results when the master asks for it: hvd_pods/master/results.sh. Kubernetes ends
it with the master, and its exit code is not the pod's.
*/}}
{{- define "horovod.resultsContainer" -}}
{{- $results := .facts.values.results -}}
{{- if $results.command }}
- name: results
  restartPolicy: Always
  {{- $images := dict "image" .facts.values.master.image "overrides" $results.image }}
  {{- $image := include "horovod.mergedImage" $images | fromJson }}
  {{- include "horovod.image" (dict "root" . "image" $image) | nindent 2 }}
  command:
    {{- $script := dict "root" . "script" "master/results.sh" "command" $results.command }}
    {{- include "horovod.scriptCommand" $script | nindent 4 }}
  env:
    {{- $variables := list
      (dict "name" "HOME" "value" "/tmp")
      (dict "name" "RESULTS_PATH" "value" .facts.resultsPath)
      (dict "name" "RESULTS_EXCHANGE" "value" "/horovod/results") }}
    {{- include "horovod.env" (dict "entries" (concat $variables $results.env) "key" "results.env")
      | nindent 4 }}
  {{- with include "horovod.initResources" .facts.values.master.resources }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .facts.values.securityContext | nindent 4 }}
  volumeMounts:
    {{- /* A /tmp of the user's is the master's, unless the results are there. */}}
    {{- $hasResultsInTmp := eq .facts.resultsMount.mountPath "/tmp" }}
    {{- if not $hasResultsInTmp }}
    - {name: tmp, mountPath: /tmp, subPath: results}
    {{- end }}
    {{- /* The master and this container exchange files in it. */}}
    - {name: generated, mountPath: /horovod/results, subPath: results}
    {{- /* Kubernetes gives the pod's token to each container that has nothing mounted there. */}}
    - {name: tmp, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, subPath: no-token, readOnly: true}
    {{- range .facts.values.volumeMounts }}
    {{- if or $hasResultsInTmp (ne .mountPath "/tmp") }}
    - {{ toYaml . | nindent 6 | trim }}
    {{- end }}
    {{- end }}
{{- end }}
{{- end }}
