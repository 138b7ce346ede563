{{/* Refusals of fields of pods and of their main containers that the chart sets itself. */}}

{{- define "horovod.checkPodFields" -}}
{{- range $owner, $values := .facts.podValues -}}
  {{- $isMaster := eq $owner "master" -}}
  {{- $arguments := dict "owner" $owner "isMaster" $isMaster "hostNetwork" $.facts.values.hostNetwork -}}
  {{- $fields := dict
    "podSpec" (include "horovod.podFields" $arguments | fromYaml)
    "container" (include "horovod.containerFields" $arguments | fromYaml) -}}
  {{- range $key := list "podSpec" "container" -}}
    {{- range $field, $value := get $values $key -}}
      {{- with get (get $fields $key) $field -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "%s.%s has %s" $owner $key $field)
          "why" "the chart sets that field"
          "do" (ternary "remove it" (printf "use %s" .) (eq . "nothing"))) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
The fields of a pod that the chart sets, each with the value that changes it, or with `nothing`.
Call with (dict "owner" "workerGroups[a]" "isMaster" false "hostNetwork" false).
*/}}
{{- define "horovod.podFields" -}}
affinity: {{ .owner }}.affinity
{{- if .isMaster }}
automountServiceAccountToken: serviceAccount
serviceAccount: serviceAccount
serviceAccountName: serviceAccount
{{- /* A container beside the master's would keep the pod of the Job from ending. */}}
containers: "master.initContainers, with restartPolicy: Always"
{{- else }}
containers: {{ .owner }}.extraContainers
{{- if .hostNetwork }}
dnsPolicy: hostNetwork
{{- end }}
{{- end }}
enableServiceLinks: nothing
ephemeralContainers: nothing
hostNetwork: hostNetwork
hostname: nothing
imagePullSecrets: imagePullSecrets
initContainers: {{ .owner }}.initContainers
nodeSelector: {{ .owner }}.nodeSelector
priorityClassName: priorityClassName
restartPolicy: nothing
schedulerName: schedulerName
schedulingGroup: gang
securityContext: podSecurityContext
setHostnameAsFQDN: nothing
subdomain: nothing
terminationGracePeriodSeconds: {{ .owner }}.terminationGracePeriodSeconds
tolerations: {{ .owner }}.tolerations
volumes: volumes
{{- end }}

{{/* The same of its main container. */}}
{{- define "horovod.containerFields" -}}
args: master.args
command: master.args
env: {{ .owner }}.env
envFrom: {{ .owner }}.envFrom
image: {{ .owner }}.image
imagePullPolicy: {{ .owner }}.image
name: nothing
ports: nothing
resources: {{ .owner }}.resources
restartPolicy: nothing
restartPolicyRules: nothing
securityContext: securityContext
startupProbe: nothing
terminationMessagePath: nothing
terminationMessagePolicy: nothing
volumeMounts: volumeMounts
{{- end }}
