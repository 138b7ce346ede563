{{/* The template of the master's pod. */}}
{{- define "horovod.masterPod" -}}
{{- $master := .facts.values.master -}}
{{- $metadata := include "horovod.podMetadata" (dict "root" . "of" $master) | fromJson -}}
metadata:
  labels:
    {{- include "horovod.selectorLabels" (dict "root" . "component" "master") | nindent 4 }}
    {{- with $metadata.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $metadata.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  {{- if eq .facts.values.gang "Kubernetes" }}
  schedulingGroup: {podGroupName: {{ .facts.podGroup | quote }}}
  {{- end }}
  {{- with .facts.serviceAccount }}
  serviceAccountName: {{ . | quote }}
  {{- end }}
  automountServiceAccountToken: {{ ne .facts.serviceAccount "" }}
  {{- include "horovod.podSettings" . | nindent 2 }}
  {{- with include "horovod.scheduling" $master }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- with include "horovod.addedPodFields" $master }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- $own := include "horovod.addedContainers" (dict "root" . "containers" $master.initContainers) }}
  {{- with print $own (include "horovod.resultsContainer" .) }}
  initContainers:
    {{- . | trim | nindent 4 }}
  {{- end }}
  containers:
    - name: master
      {{- include "horovod.image" (dict "root" . "image" $master.image) | nindent 6 }}
      command:
        {{- $program := list "-I" "-S" "-u" "/horovod/bin/hvd_pods/master/main.py" }}
        {{- concat .facts.programs.command $program | toYaml | nindent 8 }}
      env:
        {{- $variables := include "horovod.masterVariables" . | fromJsonArray }}
        {{- include "horovod.env" (dict "entries" (concat $variables $master.env) "of" "master.env")
          | nindent 8 }}
      {{- with include "horovod.addedContainerFields" $master }}
      {{- . | trim | nindent 6 }}
      {{- end }}
      {{- if .facts.values.metrics.enabled }}
      ports:
        - {name: metrics, containerPort: {{ .facts.shared.metricsPort }}}
      {{- end }}
      {{- with $master.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .facts.values.securityContext | nindent 8 }}
      volumeMounts:
        {{- $mounts := include "horovod.chartMounts" (dict "root" . "component" "master") | fromJsonArray }}
        {{- $all := concat $mounts .facts.values.volumeMounts }}
        {{- include "horovod.uniqueItems" (dict "items" $all "key" "mountPath") | nindent 8 }}
  volumes:
    {{- $volumes := include "horovod.chartVolumes" (dict "root" . "component" "master") | fromJsonArray }}
    {{- $all := concat $volumes .facts.values.volumes }}
    {{- include "horovod.uniqueItems" (dict "items" $all "key" "name") | nindent 4 }}
{{- end }}

{{/* The variables that the chart sets in the master, as JSON; master.env overrides them. */}}
{{- define "horovod.masterVariables" -}}
{{- $keys := .facts.keys -}}
{{- $metrics := .facts.values.metrics -}}
{{- $ofAddress := dict "fieldRef" (dict "fieldPath" "status.podIP") -}}
{{- $ofUid := dict "fieldRef" (dict "fieldPath" "metadata.labels['batch.kubernetes.io/controller-uid']") -}}
{{- $ofJob := dict "fieldRef" (dict "fieldPath" "metadata.labels['batch.kubernetes.io/job-name']") -}}
{{- /* For a custom command in Python. The master itself runs with -I, which ignores such variables. */ -}}
{{- $unbuffered := list (dict "name" "PYTHONUNBUFFERED" "value" "1") -}}
{{- /* Kubernetes expands $(NAME) in a value and turns $$ into $, so that each dollar sign is doubled. */ -}}
{{- $run := include "horovod.run" . | replace "$" "$$" -}}
{{- $added := list (dict "name" "HVD_RUN" "value" $run) (dict "name" "HVD_JOB_UID" "valueFrom" $ofUid) -}}
{{- /* MPICH's ranks connect to the master by this address, because they may not resolve its name. */ -}}
{{- $added = append $added (dict "name" "HVD_POD_IP" "valueFrom" $ofAddress) -}}
{{- $added = append $added (dict "name" "HVD_JOB" "valueFrom" $ofJob) -}}
{{- if $keys.areOwn -}}
  {{- $secrets := printf "%s %s" $keys.secrets.master $keys.secrets.worker -}}
  {{- $added = append $added (dict "name" "HVD_KEYS_SECRETS" "value" $secrets) -}}
{{- end -}}
{{- $ofFirst := dict "env" (first .facts.groups).env "name" "HVD_TAG_OUTPUT" -}}
{{- with include "horovod.envEntry" $ofFirst | fromJson -}}
  {{- /* The same in all groups. The master starts mpirun with an option that names the rank of each line
  (hvd_pods/master/mpi.py). */ -}}
  {{- $added = append $added . -}}
{{- end -}}
{{- if ne .facts.values.launch.framework "horovod" -}}
  {{- $added = append $added (dict "name" "HVD_FRAMEWORK" "value" .facts.values.launch.framework) -}}
{{- end -}}
{{- with .facts.values.serviceMesh -}}
  {{- $added = append $added (dict "name" "HVD_MESH" "value" .) -}}
{{- end -}}
{{- if $metrics.enabled -}}
  {{- /* For hvd_pods/master/serve_metrics.py. */ -}}
  {{- $added = append $added (dict "name" "HVD_METRICS_PORT" "value" (toString .facts.shared.metricsPort)) -}}
  {{- $added = append $added (dict "name" "HVD_METRICS_FILE" "value" $metrics.file) -}}
{{- end -}}
{{- concat $unbuffered (include "horovod.userVariables" . | fromJsonArray) $added | toJson -}}
{{- end }}
