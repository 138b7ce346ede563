{{/* The template of the master's pod. */}}
{{- define "horovod.masterPod" -}}
{{- $master := .facts.values.master -}}
{{- $metadata := include "horovod.podMetadata" (dict "root" . "values" $master) | fromJson -}}
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
  {{- with .facts.gangFields }}
  {{- . | nindent 2 }}
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
  {{- with include "horovod.addedContainers" (dict "root" . "containers" $master.initContainers) }}
  initContainers:
    {{- . | trim | nindent 4 }}
  {{- end }}
  containers:
    {{- include "horovod.masterContainer" . | nindent 4 }}
  volumes:
    {{- $chartVolumes := include "horovod.chartVolumes" (dict "root" . "component" "master") }}
    {{- $volumes := concat (fromYamlArray $chartVolumes) .facts.values.volumes }}
    {{- include "horovod.uniqueItems" (dict "items" $volumes "key" "name") | nindent 4 }}
{{- end }}

{{/* The main container of the master. */}}
{{- define "horovod.masterContainer" -}}
{{- $master := .facts.values.master -}}
- name: master
  {{- include "horovod.image" (dict "root" . "image" $master.image) | nindent 2 }}
  command:
    {{- $program := list "-I" "-S" "-u" "/horovod/bin/hvd_pods/master/main.py" }}
    {{- concat .facts.programs.command $program | toYaml | nindent 4 }}
  env:
    {{- $variables := concat (include "horovod.masterVariables" . | fromYamlArray) $master.env }}
    {{- include "horovod.env" (dict "entries" $variables "key" "master.env") | nindent 4 }}
  {{- with include "horovod.addedContainerFields" $master }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- if .facts.values.metrics.enabled }}
  ports:
    - {name: metrics, containerPort: {{ int .facts.values.metrics.port }}}
  {{- end }}
  {{- with $master.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .facts.values.securityContext | nindent 4 }}
  volumeMounts:
    {{- $chartMounts := include "horovod.chartMounts" (dict "root" . "component" "master") }}
    {{- $mounts := concat (fromYamlArray $chartMounts) .facts.mounts }}
    {{- include "horovod.uniqueItems" (dict "items" $mounts "key" "mountPath") | nindent 4 }}
{{- end }}

{{/* The variables that the chart sets in the master; master.env overrides them. */}}
{{- define "horovod.masterVariables" -}}
{{- $keys := .facts.keys -}}
{{- $values := .facts.values -}}
{{- /* For a custom command in Python. The master itself runs with -I, which ignores such variables. */ -}}
- {name: PYTHONUNBUFFERED, value: "1"}
{{ include "horovod.userVariables" . }}
{{- /* Kubernetes expands $(NAME) in a value and turns $$ into $, so that each dollar sign is doubled. */}}
- {name: HVD_RUN, value: {{ include "horovod.run" . | replace "$" "$$" | quote }}}
- name: HVD_JOB_UID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
{{- /* MPICH's ranks connect to the master by this address, because they may not resolve its name. */}}
- {name: HVD_POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- name: HVD_JOB
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
{{- if $keys.areOwn }}
- {name: HVD_KEYS_SECRETS, value: {{ printf "%s %s" $keys.secrets.master $keys.secrets.worker | quote }}}
{{- end }}
{{- /* The same in all groups. The master starts mpirun with an option that names the rank of each line
(hvd_pods/master/mpi.py). */}}
{{- with .facts.tagOutput }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- if ne $values.launch.framework "horovod" }}
- {name: HVD_FRAMEWORK, value: {{ quote $values.launch.framework }}}
{{- end }}
{{- with $values.serviceMesh }}
- {name: HVD_MESH, value: {{ quote . }}}
{{- end }}
{{- if $values.metrics.enabled }}
{{- /* For hvd_pods/master/serve_metrics.py. */}}
- {name: HVD_METRICS_PORT, value: {{ int $values.metrics.port | quote }}}
{{- end }}
{{- end }}
