{{/* Refusals about pods: images, placement, rights, fields, containers and labels. */}}
{{- define "horovod.checkPods" -}}
{{- include "horovod.checkImages" . -}}
{{- include "horovod.checkSpread" . -}}
{{- include "horovod.checkRights" . -}}
{{- include "horovod.checkPod" (dict "root" . "of" "master" "values" .facts.values.master) -}}
{{- range .facts.groups -}}
  {{- $of := ternary (printf "workerGroups[%s]" .name) "worker" (not (empty $.facts.values.workerGroups)) -}}
  {{- include "horovod.checkPod" (dict "root" $ "of" $of "values" .) -}}
{{- end -}}
{{- include "horovod.checkLabels" . -}}
{{- include "horovod.checkPodLabels" . -}}
{{- end }}

{{/* There is no default image: no public registry has one with everything that the chart needs. */}}
{{- define "horovod.checkImages" -}}
{{- $owners := dict "master" .facts.values.master.image -}}
{{- range .facts.groups -}}{{- $_ := set $owners (printf "group %q" .name) .image -}}{{- end -}}
{{- if .facts.values.tensorboard.enabled -}}
  {{- $_ := set $owners "tensorboard" .facts.values.tensorboard.image -}}
{{- end -}}
{{- $default := .facts.values.image.repository -}}
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

{{/* Two rules for how workers spread over nodes. */}}
{{- define "horovod.checkSpread" -}}
{{- range .facts.groups -}}
  {{- if and (eq .spread "Required") (hasKey .affinity "podAntiAffinity") -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "group %q: spread is Required but affinity.podAntiAffinity is given too" .name)
      "do" "use only one of them (spread: None leaves it to affinity)") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Users of the pods, and what Linux lets them do. */}}
{{- define "horovod.checkRights" -}}
{{- $user := .facts.values.podSecurityContext.runAsUser -}}
{{- range .facts.groups -}}
  {{- if and .capabilities (ne (toString $user) "0") -}}
    {{- $uid := toString ($user | default "the image's") -}}
    {{- $capabilities := printf "group %q: capabilities is %s" .name (toJson .capabilities) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s but podSecurityContext.runAsUser is %s" $capabilities $uid)
      "why" "Linux gives added capabilities to root only"
      "do" "run as 0 (with runAsNonRoot: false), or remove them and raise the node's memlock limit") -}}
  {{- end -}}
{{- end -}}
{{- if and .facts.values.podSecurityContext.runAsNonRoot (eq (toString $user) "0") -}}
  {{- include "horovod.refuse" (dict
    "what" "podSecurityContext.runAsUser is 0 but runAsNonRoot is true"
    "do" "for a root image set runAsNonRoot to false too") -}}
{{- end -}}
{{- end }}

{{/* Labels of objects that the chart sets itself. */}}
{{- define "horovod.checkLabels" -}}
{{- range $key, $value := .facts.values.labels -}}
  {{- $isOfObjects := regexMatch
    "^app\\.kubernetes\\.io/(name|instance|component|version|managed-by)$" $key -}}
  {{- if or $isOfObjects (hasPrefix "hvdchart/" $key) (eq $key "helm.sh/chart") -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "labels has %s" $key)
      "why" "the chart sets that label"
      "do" "use another one") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Labels of pods that the chart's selectors need. */}}
{{- define "horovod.checkPodLabels" -}}
{{- $labels := dict "podLabels" .facts.values.podLabels "master.podLabels" .facts.values.master.podLabels -}}
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
What the values add to the pod of the master or of a group.
Call with (dict "root" $ "of" "master" "values" .facts.values.master).
*/}}
{{- define "horovod.checkPod" -}}
{{- include "horovod.checkPodSpec" . -}}
{{- include "horovod.checkContainer" . -}}
{{- include "horovod.checkContainerNames" . -}}
{{- end }}

{{/* Fields of the pod that the chart sets. Call as horovod.checkPod. */}}
{{- define "horovod.checkPodSpec" -}}
{{- $of := .of -}}
{{- $owned := dict
  "affinity" (printf "%s.affinity" $of)
  "automountServiceAccountToken" "serviceAccount"
  "containers" (printf "%s.extraContainers" $of)
  "enableServiceLinks" ""
  "ephemeralContainers" ""
  "hostNetwork" "hostNetwork"
  "hostname" ""
  "imagePullSecrets" "imagePullSecrets"
  "initContainers" (printf "%s.initContainers" $of)
  "nodeSelector" (printf "%s.nodeSelector" $of)
  "priorityClassName" "priorityClassName"
  "restartPolicy" ""
  "schedulerName" "schedulerName"
  "schedulingGroup" "gang"
  "securityContext" "podSecurityContext"
  "serviceAccount" "serviceAccount"
  "serviceAccountName" "serviceAccount"
  "setHostnameAsFQDN" ""
  "subdomain" ""
  "terminationGracePeriodSeconds" (printf "%s.terminationGracePeriodSeconds" $of)
  "tolerations" (printf "%s.tolerations" $of)
  "volumes" "volumes" -}}
{{- if eq $of "master" -}}
  {{- /* A container beside the master's would keep the pod of the Job from ending. */ -}}
  {{- $_ := set $owned "containers" "master.initContainers, with restartPolicy: Always" -}}
{{- else -}}
  {{- /* The workers' ServiceAccount is the user's. */ -}}
  {{- $owned = omit $owned "automountServiceAccountToken" "serviceAccount" "serviceAccountName" -}}
  {{- if .root.facts.values.hostNetwork -}}{{- $_ := set $owned "dnsPolicy" "hostNetwork" -}}{{- end -}}
{{- end -}}
{{- include "horovod.checkFields" (dict "of" $of "key" "podSpec" "values" .values "owned" $owned) -}}
{{- end }}

{{/* Fields of the container that the chart sets. Call as horovod.checkPod. */}}
{{- define "horovod.checkContainer" -}}
{{- $of := .of -}}
{{- $owned := dict
  "args" "master.args"
  "command" "master.args"
  "env" (printf "%s.env" $of)
  "envFrom" (printf "%s.envFrom" $of)
  "image" (printf "%s.image" $of)
  "imagePullPolicy" (printf "%s.image" $of)
  "name" ""
  "ports" ""
  "resources" (printf "%s.resources" $of)
  "restartPolicy" ""
  "restartPolicyRules" ""
  "securityContext" "securityContext"
  "startupProbe" ""
  "terminationMessagePath" ""
  "terminationMessagePolicy" ""
  "volumeMounts" "volumeMounts" -}}
{{- include "horovod.checkFields" (dict "of" $of "key" "container" "values" .values "owned" $owned) -}}
{{- end }}

{{/*
Refuses fields that the chart sets.
Call with (dict "of" "master" "key" "podSpec" "values" $master "owned" $owned). $owned has the fields that the
chart sets, with the values that change them, or "" where nothing does.
*/}}
{{- define "horovod.checkFields" -}}
{{- $of := .of -}}
{{- $key := .key -}}
{{- $owned := .owned -}}
{{- range $field, $value := get .values $key -}}
  {{- if hasKey $owned $field -}}
    {{- $other := get $owned $field -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s.%s has %s" $of $key $field)
      "why" "the chart sets that field"
      "do" (ternary "remove it" (printf "use %s" $other) (empty $other))) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Names of the containers that the values add. Call as horovod.checkPod. */}}
{{- define "horovod.checkContainerNames" -}}
{{- $of := .of -}}
{{- $values := .values -}}
{{- $names := list -}}
{{- range $key := list "initContainers" "extraContainers" -}}
  {{- range get $values $key | default list -}}
    {{- if has .name (list "master" "worker" "staging" "results") -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s.%s has a container named %q" $of $key .name)
        "why" "the chart has a container of that name"
        "do" "rename yours") -}}
    {{- end -}}
    {{- if has .name $names -}}
      {{- include "horovod.refuse" (dict
        "what" (printf "%s.%s has another container named %q" $of $key .name)
        "why" "the names of a pod's containers must differ"
        "do" "rename one of them") -}}
    {{- end -}}
    {{- $names = append $names .name -}}
  {{- end -}}
{{- end -}}
{{- end }}
