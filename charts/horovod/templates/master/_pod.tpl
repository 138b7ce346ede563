{{/* The template of the master's pod. */}}
{{- define "horovod.masterPod" -}}
{{- $master := .Values.master -}}
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
  {{- if eq .Values.gang "Kubernetes" }}
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
        {{- $variables := include "horovod.masterVariables" . | fromYamlArray }}
        {{- include "horovod.env" (dict "entries" (concat $variables $master.env) "of" "master.env")
          | nindent 8 }}
      {{- with include "horovod.addedContainerFields" $master }}
      {{- . | trim | nindent 6 }}
      {{- end }}
      {{- if .Values.metrics.enabled }}
      ports:
        - {name: metrics, containerPort: {{ .facts.shared.metricsPort }}}
      {{- end }}
      {{- with $master.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- $mounts := include "horovod.chartMounts" (dict "root" . "component" "master") | fromYamlArray }}
        {{- $all := concat $mounts .Values.volumeMounts }}
        {{- include "horovod.uniqueItems" (dict "items" $all "key" "mountPath") | nindent 8 }}
  volumes:
    {{- $volumes := include "horovod.chartVolumes" (dict "root" . "component" "master") | fromYamlArray }}
    {{- $all := concat $volumes .Values.volumes }}
    {{- include "horovod.uniqueItems" (dict "items" $all "key" "name") | nindent 4 }}
{{- end }}

{{/* The variables that the chart sets in the master; master.env overrides them. */}}
{{- define "horovod.masterVariables" -}}
{{- /* For a custom command in Python. The master itself runs with -I, which ignores such variables. */ -}}
- {name: PYTHONUNBUFFERED, value: "1"}
{{ include "horovod.userVariables" . }}
{{- /* Kubernetes expands $(NAME) in a value and turns $$ into $, so that each dollar sign is doubled. */}}
- {name: HVD_RUN, value: {{ include "horovod.run" . | replace "$" "$$" | quote }}}
- name: HVD_JOB_UID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
{{- /* MPICH's ranks connect to the master by this address, because they may not resolve its name. */}}
- {name: HVD_POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: HVD_JOB, valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}}
{{- if .facts.keys.areOwn }}
{{- $secrets := .facts.keys.secrets }}
- {name: HVD_KEYS_SECRETS, value: {{ printf "%s %s" $secrets.master $secrets.worker | quote }}}
{{- end }}
{{- $ofFirst := dict "env" (first .facts.groups).env "name" "HVD_TAG_OUTPUT" }}
{{- with include "horovod.envEntry" $ofFirst | fromJson }}
  {{- /* The same in all groups. The master starts mpirun with an option that names the rank of each line
  (hvd_pods/master/mpi.py). */}}
- {{ toJson . }}
{{- end }}
{{- if ne .Values.launch.framework "horovod" }}
- {name: HVD_FRAMEWORK, value: {{ quote .Values.launch.framework }}}
{{- end }}
{{- with .Values.serviceMesh }}
- {name: HVD_MESH, value: {{ . | quote }}}
{{- end }}
{{- if .Values.metrics.enabled }}
  {{- /* For hvd_pods/master/serve_metrics.py. */}}
- {name: HVD_METRICS_PORT, value: {{ .facts.shared.metricsPort | quote }}}
- {name: HVD_METRICS_FILE, value: {{ .Values.metrics.file | quote }}}
{{- end }}
{{- end }}
