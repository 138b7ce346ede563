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
{{- define "horovod.checkNodePorts" -}}
{{- range $key, $text := include "horovod.chartPorts" . | fromYaml -}}
  {{- $port := int $text -}}
  {{- $isOfControlPlane := has $port (list 2379 2380 6443) -}}
  {{- $isOfNodeComponent := and (ge $port 10248) (le $port 10259) -}}
  {{- $isOfService := and (ge $port 30000) (le $port 32767) -}}
  {{- if and $.facts.values.hostNetwork (or $isOfControlPlane $isOfNodeComponent $isOfService) -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "hostNetwork is true but %s is %d" $key $port)
      "why" "Kubernetes uses that port on nodes (etcd, API server, kubelet, kube-proxy or node ports)"
      "do" "choose another port") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
On their nodes' network, the workers of two releases need different ports or different nodes. So do those of
two dependencies of one release, whose labels have two names.
*/}}
{{- define "horovod.checkPortsInUse" -}}
{{- $labels := include "horovod.releaseLabels" . | fromYaml -}}
{{- $ports := include "horovod.chartPorts" . | fromYaml -}}
{{- if .facts.values.hostNetwork -}}
  {{- range $owner, $group := omit .facts.podValues "master" -}}
    {{- range $set := $.facts.statefulSets -}}
      {{- $pod := .spec.template.spec -}}
      {{- $isOwn := include "horovod.hasLabels" (dict "object" . "labels" $labels) -}}
      {{- $nodes := dict "selector" $group.nodeSelector "other" ($pod.nodeSelector | default dict) -}}
      {{- $isApart := include "horovod.selectsOtherNodes" $nodes -}}
      {{- if and $pod.hostNetwork .spec.replicas (not $isOwn) (not $isApart) -}}
        {{- $taken := include "horovod.portsOfPod" $pod | fromYamlArray -}}
        {{- range $key, $port := $ports -}}
          {{- if has $port $taken -}}
            {{- include "horovod.refuse" (dict
              "what" (printf "hostNetwork is true and %s is %s" $key $port)
              "why" (printf "the pods of StatefulSet %q have that port of their nodes" $set.metadata.name)
              "do" (printf "choose another port, or select other nodes with %s.nodeSelector" $owner)) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* In one pod, a port has one container. */}}
{{- define "horovod.checkPortsOfPod" -}}
{{- $ports := include "horovod.chartPorts" . | fromYaml -}}
{{- range $owner, $group := omit .facts.podValues "master" -}}
  {{- range $list, $field := dict "extraContainers" "containers" "initContainers" "initContainers" -}}
    {{- $taken := include "horovod.portsOfPod" (dict $field (get $group $list)) | fromYamlArray -}}
    {{- range $key, $port := $ports -}}
      {{- if has $port $taken -}}
        {{- include "horovod.refuse" (dict
          "what" (printf "%s is %s but %s.%s has that port" $key $port $owner $list)
          "why" "a pod has each port once"
          "do" "choose another port for one of them") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The ports that the chart gives to workers, as a map of YAML from their values. */}}
{{- define "horovod.chartPorts" -}}
agent.port: "{{ int .facts.values.agent.port }}"
{{- if .facts.values.metrics.enabled }}
metrics.port: "{{ int .facts.values.metrics.port }}"
{{- end }}
{{- end }}

{{/*
The TCP ports of a running pod, as a YAML list of texts: of init containers, only native sidecars still run.
Call with a pod spec, or with a map of its `containers` or `initContainers`.
*/}}
{{- define "horovod.portsOfPod" -}}
{{- $running := .containers | default list }}
{{- range .initContainers }}
{{- if eq (.restartPolicy | default "") "Always" }}{{ $running = append $running . }}{{ end }}
{{- end }}
{{- range $running }}
{{- range .ports }}
{{- if eq (.protocol | default "TCP") "TCP" }}
- "{{ int .containerPort }}"
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
"true" when no node has the labels of both node selectors, else empty.
Call with (dict "selector" $labels "other" $labels).
*/}}
{{- define "horovod.selectsOtherNodes" -}}
{{- $isApart := false -}}
{{- range $key, $value := .selector -}}
  {{- $isOther := and (hasKey $.other $key) (ne $value (get $.other $key)) -}}
  {{- if $isOther -}}{{- $isApart = true -}}{{- end -}}
{{- end -}}
{{- if $isApart -}}true{{- end -}}
{{- end }}
