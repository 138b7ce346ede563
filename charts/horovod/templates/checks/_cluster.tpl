{{/*
Checks of the values against the cluster: objects that they name exist, and none is in the way. They need
access to it.
*/}}
{{- define "horovod.checkCluster" -}}
{{- if .facts.hasAccess -}}
  {{- include "horovod.checkSelectors" . -}}
  {{- include "horovod.checkKeySecrets" . -}}
  {{- include "horovod.checkPortOfNodes" . -}}
  {{- include "horovod.checkNamedObjects" . -}}
{{- end -}}
{{- end }}

{{/*
Another nameOverride has made objects that select other pods. Helm itself refuses objects of another release.
*/}}
{{- define "horovod.checkSelectors" -}}
{{- $ns := .Release.Namespace -}}
{{- $objects := list -}}
{{- range .facts.groups -}}
  {{- $old := get $.facts.statefulSets .objectName | default dict -}}
  {{- $selector := include "horovod.groupSelectorLabels" (dict "root" $ "group" .) | fromYaml -}}
  {{- $objects = append $objects
    (dict "kind" "StatefulSet" "name" .objectName "old" $old "selector" $selector) -}}
{{- end -}}
{{- if .facts.values.tensorboard.enabled -}}
  {{- $selector := include "horovod.selectorLabels" (dict "root" . "component" "tensorboard") | fromYaml -}}
  {{- $name := printf "%s-tensorboard" .facts.fullname -}}
  {{- $old := lookup "apps/v1" "Deployment" $ns $name | default dict -}}
  {{- $objects = append $objects
    (dict "kind" "Deployment" "name" $name "old" $old "selector" $selector) -}}
{{- end -}}
{{- range $objects -}}
  {{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" $.Release.Name .old -}}
  {{- $labels := dig "spec" "selector" "matchLabels" dict .old -}}
  {{- if and $labels (eq $owner $.Release.Name) (ne (toJson $labels) (toJson .selector)) -}}
    {{- $command := printf "kubectl --namespace %s delete %s %s" $ns (lower .kind) .name -}}
    {{- include "horovod.refuse" (dict
      "what" (printf
        "%s %q selects pods by %s and not by %s" .kind .name (toJson $labels) (toJson .selector))
      "why" "Kubernetes never changes a selector"
      "do" (printf "end the run, delete it (%s) and upgrade again" $command)) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The Secrets with keys that the values name. */}}
{{- define "horovod.checkKeySecrets" -}}
{{- $ns := .Release.Namespace -}}
{{- range $value, $name := pick .facts.values.agent "masterSecret" "workerSecret" -}}
  {{- $asked := dict "root" $ "kind" "Secret" "name" $name -}}
  {{- if and $name (not (include "horovod.createsObject" $asked)) -}}
    {{- $secret := lookup "v1" "Secret" $ns $name | default dict -}}
    {{- range $key := list "tls.crt" "tls.key" "ca.crt" -}}
      {{- if not (dig "data" $key "" $secret) -}}
        {{- include "horovod.refuse" (dict
          "what" (printf
            "agent.%s is %q but namespace %q has no such Secret with the key %q" $value $name $ns $key)
          "do" "create it first, or leave both Secrets of agent empty and the chart makes the keys") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* On their nodes' network, the workers of two releases need two ports. */}}
{{- define "horovod.checkPortOfNodes" -}}
{{- $port := int .facts.values.agent.port -}}
{{- range $set := ternary .facts.statefulSets dict .facts.values.hostNetwork -}}
  {{- $pod := .spec.template.spec -}}
  {{- $isOther := ne (dig "labels" "app.kubernetes.io/instance" "" .metadata) $.Release.Name -}}
  {{- if and $isOther $pod.hostNetwork .spec.replicas -}}
    {{- range $pod.containers -}}
      {{- range .ports -}}
        {{- if eq (int .containerPort) $port -}}
          {{- include "horovod.refuse" (dict
            "what" (printf "hostNetwork is true and agent.port is %d" $port)
            "why" (printf "the pods of StatefulSet %q have that port of their nodes" $set.metadata.name)
            "do" "choose another port") -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Objects of the API group v1 that must exist, each with the value that names it. */}}
{{- define "horovod.checkNamedObjects" -}}
{{- $ns := .Release.Namespace -}}
{{- $named := list -}}
{{- $remedy := "create it first, or correct the name" -}}
{{- range .facts.groups -}}
  {{- range .volumes -}}
    {{- $claim := dig "persistentVolumeClaim" "claimName" "" . -}}
    {{- $value := printf "volumes[%s].persistentVolumeClaim.claimName" .name -}}
    {{- $named = append $named
      (dict "kind" "PersistentVolumeClaim" "name" $claim "value" $value "remedy" $remedy) -}}
  {{- end -}}
  {{- $value := printf "worker.podSpec.serviceAccountName (group %s)" .name -}}
  {{- $named = append $named
    (dict "kind" "ServiceAccount" "name" .podSpec.serviceAccountName "value" $value "remedy" $remedy) -}}
{{- end -}}
{{- if not .facts.values.serviceAccount.create -}}
  {{- $remedy := "create it first, or set serviceAccount.create" -}}
  {{- $name := .facts.values.serviceAccount.name -}}
  {{- $named = append $named
    (dict "kind" "ServiceAccount" "name" $name "value" "serviceAccount.name" "remedy" $remedy) -}}
{{- end -}}
{{- range $named -}}
  {{- $asked := dict "root" $ "kind" .kind "name" .name -}}
  {{- if and .name (not (include "horovod.createsObject" $asked)) (not (lookup "v1" .kind $ns .name)) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "%s is %q, but namespace %q has no such %s" .value .name $ns .kind)
      "do" .remedy) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
Not empty if extraObjects has an object, which Helm creates before the pods that name it.
Call with (dict "root" $ "kind" "Secret" "name" $name).
*/}}
{{- define "horovod.createsObject" -}}
{{- range .root.facts.values.extraObjects -}}
  {{- if and (eq (dig "kind" "" .) $.kind) (eq (dig "metadata" "name" "" .) $.name) -}}true{{- end -}}
{{- end -}}
{{- end }}
