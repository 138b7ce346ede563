{{/* Refusals of settings of the network and of ports. */}}

{{- define "horovod.checkHostNetwork" -}}
{{- $values := .facts.values -}}
{{- if and $values.hostNetwork (eq $values.serviceMesh "Ambient") -}}
  {{- include "horovod.refuse" (dict
    "what" "serviceMesh is Ambient but hostNetwork is true"
    "why" "Istio's ambient mesh leaves out pods on their node's network"
    "do" "set one of them to another value") -}}
{{- end -}}
{{- if and $values.hostNetwork $values.networkPolicy.enabled -}}
  {{- include "horovod.refuse" (dict
    "what" "networkPolicy.enabled is true but hostNetwork is true"
    "why" "a NetworkPolicy does not apply to pods on their node's network"
    "do" "set one of them to false") -}}
{{- end -}}
{{- end }}

{{/* Ports that Kubernetes itself uses on nodes. */}}
{{- define "horovod.checkNodePort" -}}
{{- $port := int .facts.values.agent.port -}}
{{- $isOfControlPlane := has $port (list 2379 2380 6443) -}}
{{- $isOfNodeComponent := and (ge $port 10248) (le $port 10259) -}}
{{- $isOfService := and (ge $port 30000) (le $port 32767) -}}
{{- if and .facts.values.hostNetwork (or $isOfControlPlane $isOfNodeComponent $isOfService) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "hostNetwork is true but agent.port is %d" $port)
    "why" "Kubernetes uses that port on nodes (etcd, API server, kubelet, kube-proxy or node ports)"
    "do" "choose another port") -}}
{{- end -}}
{{- end }}

{{/*
On their nodes' network, the workers of two releases need two ports. So do those of two dependencies of one
release, whose labels have two names.
*/}}
{{- define "horovod.checkPortInUse" -}}
{{- $port := int .facts.values.agent.port -}}
{{- $labels := include "horovod.releaseLabels" . | fromYaml -}}
{{- range $set := ternary .facts.statefulSets dict .facts.values.hostNetwork -}}
  {{- $pod := .spec.template.spec -}}
  {{- $isOwn := include "horovod.hasLabels" (dict "object" . "labels" $labels) -}}
  {{- $usesNodes := and $pod.hostNetwork .spec.replicas (not $isOwn) -}}
  {{- range ternary list $pod.containers (empty $usesNodes) -}}
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
{{- end }}
