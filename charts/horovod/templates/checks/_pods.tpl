{{/* Refusals of what the values add to pods: images, fields, containers, labels and ServiceAccounts. */}}

{{/* The chart has no default image, because no public registry has one with everything that it needs. */}}
{{- define "horovod.checkImages" -}}
{{- $owners := dict "master" .Values.master.image -}}
{{- range .facts.groups -}}{{- $_ := set $owners (printf "group %q" .name) .image -}}{{- end -}}
{{- with .Values.tensorboard -}}{{- if .enabled -}}{{- $_ := set $owners "tensorboard" .image -}}{{- end -}}{{- end -}}
{{- $default := .Values.image.repository -}}
{{- range $of, $image := $owners -}}
  {{- if not (or $image.repository $default) -}}
    {{- $example := "--set image.repository=registry.example/team/app --set image.tag=1.0" -}}
    {{- $build := "docs/images.md of the chart's repository shows how to build one" -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "image.repository is empty (%s)" $of)
      "do" (printf "set it to an image with Python 3, such as %s; %s" $example $build)) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkPods" -}}
{{- include "horovod.checkPod" (dict "root" . "of" "master" "values" .Values.master) -}}
{{- range .facts.groups -}}
  {{- $of := ternary (printf "workerGroups[%s]" .name) "worker" (not (empty $.Values.workerGroups)) -}}
  {{- include "horovod.checkPod" (dict "root" $ "of" $of "values" .) -}}
{{- end -}}
{{- range $key, $value := .Values.labels -}}
  {{- $isOfObjects := regexMatch
    "^app\\.kubernetes\\.io/(name|instance|component|version|managed-by)$" $key -}}
  {{- if or $isOfObjects (hasPrefix "hvdchart/" $key) (eq $key "helm.sh/chart") -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "labels has %s" $key)
      "why" "the chart sets that label"
      "do" "use another one") -}}
  {{- end -}}
{{- end -}}
{{- $labels := dict "podLabels" .Values.podLabels "master.podLabels" .Values.master.podLabels -}}
{{- range .facts.groups -}}
  {{- $_ := set $labels (printf "podLabels of group %q" .name) .podLabels -}}
{{- end -}}
{{- range $of, $map := $labels -}}
  {{- range $key, $value := $map -}}
    {{- $isSelected := regexMatch "^app\\.kubernetes\\.io/(name|instance|component)$" $key -}}
    {{- if or $isSelected (hasPrefix "hvdchart/" $key) -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s has %s" $of $key)
        "why" "the chart's selectors need that label"
        "do" "use another one") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
The fields of a pod spec that the chart sets, with the values that change them, or "" where nothing does. OF
stands for worker, master or the group. The workers' ServiceAccount is the user's.
*/}}
{{- define "horovod.ownedPodFields" -}}
affinity: OF.affinity
automountServiceAccountToken: serviceAccount
containers: worker.extraContainers
enableServiceLinks: ""
ephemeralContainers: ""
hostNetwork: hostNetwork
hostname: ""
imagePullSecrets: imagePullSecrets
initContainers: OF.initContainers
nodeSelector: OF.nodeSelector
priorityClassName: priorityClassName
restartPolicy: ""
schedulerName: schedulerName
schedulingGroup: gang
securityContext: podSecurityContext
serviceAccount: serviceAccount
serviceAccountName: serviceAccount
setHostnameAsFQDN: ""
subdomain: ""
terminationGracePeriodSeconds: OF.terminationGracePeriodSeconds
tolerations: OF.tolerations
volumes: volumes
{{- end }}

{{/* The same for the main container. */}}
{{- define "horovod.ownedContainerFields" -}}
args: master.args
command: master.args
env: OF.env
envFrom: OF.envFrom
image: OF.image
imagePullPolicy: OF.image
name: ""
ports: ""
resources: OF.resources
restartPolicy: ""
restartPolicyRules: ""
securityContext: securityContext
startupProbe: ""
terminationMessagePath: ""
terminationMessagePolicy: ""
volumeMounts: volumeMounts
{{- end }}

{{- define "horovod.checkPod" -}}
{{- $of := .of -}}
{{- $owned := include "horovod.ownedPodFields" . | fromYaml -}}
{{- if ne $of "master" -}}
  {{- $owned = omit $owned "automountServiceAccountToken" "serviceAccount" "serviceAccountName" -}}
  {{- if .root.Values.hostNetwork -}}{{- $_ := set $owned "dnsPolicy" "hostNetwork" -}}{{- end -}}
{{- end -}}
{{- range $field, $value := .values.podSpec -}}
  {{- include "horovod.refuseOwned" (dict "of" $of "in" "podSpec" "field" $field "owned" $owned) -}}
{{- end -}}
{{- $owned = include "horovod.ownedContainerFields" . | fromYaml -}}
{{- range $field, $value := .values.container -}}
  {{- include "horovod.refuseOwned" (dict "of" $of "in" "container" "field" $field "owned" $owned) -}}
{{- end -}}
{{- $names := list "master" "worker" "staging" "results" -}}
{{- range concat (.values.initContainers | default list) (.values.extraContainers | default list) -}}
  {{- if has .name $names -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s has two containers named %q, or it is a name of the chart's" $of .name)
      "do" "rename yours") -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- end }}

{{- define "horovod.refuseOwned" -}}
{{- if hasKey .owned .field -}}
  {{- $key := get .owned .field | replace "OF" .of -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "%s.%s has %s" .of .in .field)
    "why" "the chart sets that field"
    "do" (ternary "remove it" (printf "use %s" $key) (empty $key))) -}}
{{- end -}}
{{- end }}
