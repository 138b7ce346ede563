{{/* Refusals about objects in the cluster: those that values name exist, and none has another selector. */}}

{{/*
Another nameOverride has made objects that select other pods. Helm itself refuses objects of another release.
*/}}
{{- define "horovod.checkSelectors" -}}
{{- range .facts.groups -}}
  {{- $statefulSet := get $.facts.statefulSets .statefulSet | default dict -}}
  {{- $selector := include "horovod.groupSelectorLabels" (dict "root" $ "group" .) | fromYaml -}}
  {{- include "horovod.requireSelector" (dict
    "root" $ "kind" "StatefulSet" "name" .statefulSet "object" $statefulSet "selector" $selector) -}}
{{- end -}}
{{- if .facts.values.tensorboard.enabled -}}
  {{- $name := printf "%s-tensorboard" .facts.fullname -}}
  {{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace $name | default dict -}}
  {{- $selector := include "horovod.selectorLabels" (dict "root" . "component" "tensorboard") | fromYaml -}}
  {{- include "horovod.requireSelector" (dict
    "root" $ "kind" "Deployment" "name" $name "object" $deployment "selector" $selector) -}}
{{- end -}}
{{- end }}

{{/*
Refuses an object of the release that selects other pods.
Call with (dict "root" $ "kind" "Deployment" "name" $name "object" $object "selector" $labels); `object` is {}
where the cluster has no such object.
*/}}
{{- define "horovod.requireSelector" -}}
{{- $release := .root.Release -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" $release.Name .object -}}
{{- $labels := dig "spec" "selector" "matchLabels" dict .object -}}
{{- if and $labels (eq $owner $release.Name) (ne (toJson $labels) (toJson .selector)) -}}
  {{- $delete := printf "kubectl --namespace %s delete %s %s" $release.Namespace (lower .kind) .name -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "%s %q selects pods by %s and not by %s"
      .kind .name (toJson $labels) (toJson .selector))
    "why" "Kubernetes never changes a selector"
    "do" (printf "end the run, delete it (%s) and upgrade again" $delete)) -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkClaimsExist" -}}
{{- range $group := .facts.groups -}}
  {{- range .volumes -}}
    {{- $ownKey := printf "%s.volumes" $group.valuesKey -}}
    {{- $key := ternary "volumes" $ownKey (has . $.facts.values.volumes) -}}
    {{- include "horovod.requireObject" (dict
      "root" $
      "kind" "PersistentVolumeClaim"
      "name" (dig "persistentVolumeClaim" "claimName" "" .)
      "key" (printf "%s[%s].persistentVolumeClaim.claimName" $key .name)
      "remedy" "correct the name") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "horovod.checkAccountsExist" -}}
{{- range .facts.groups -}}
  {{- include "horovod.requireObject" (dict
    "root" $
    "kind" "ServiceAccount"
    "name" .podSpec.serviceAccountName
    "key" (printf "%s.podSpec.serviceAccountName" .valuesKey)
    "remedy" "correct the name") -}}
{{- end -}}
{{- $account := .facts.values.serviceAccount -}}
{{- include "horovod.requireObject" (dict
  "root" $
  "kind" "ServiceAccount"
  "name" (ternary "" $account.name $account.create)
  "key" "serviceAccount.name"
  "remedy" "set serviceAccount.create") -}}
{{- end }}

{{/*
Refuses the name of an object of the API group v1 that does not exist. An empty name is none.
Call with (dict "root" $ "kind" "Secret" "name" $name "key" $keyOfTheValue "remedy" $remedy).
*/}}
{{- define "horovod.requireObject" -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $exists := not .name -}}
{{- if not $exists -}}
  {{- $exists = or (include "horovod.createsObject" .) (lookup "v1" .kind $namespace .name) -}}
{{- end -}}
{{- if not $exists -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "%s is %q, but namespace %q has no such %s" .key .name $namespace .kind)
    "do" (printf "create it first, or %s" .remedy)) -}}
{{- end -}}
{{- end }}

{{/*
"true" if extraObjects has an object, which Helm creates before the pods that name it, else empty.
Call with (dict "root" $ "kind" "Secret" "name" $name).
*/}}
{{- define "horovod.createsObject" -}}
{{- range .root.facts.values.extraObjects -}}
  {{- if and (eq (dig "kind" "" .) $.kind) (eq (dig "metadata" "name" "" .) $.name) -}}true{{- end -}}
{{- end -}}
{{- end }}
