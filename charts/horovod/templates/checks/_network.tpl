{{/* Refusals of settings of the network and of the agent. */}}
{{- define "horovod.checkNetwork" -}}
{{- if .facts.values.hostNetwork -}}
  {{- if eq .facts.values.serviceMesh "Ambient" -}}
    {{- include "horovod.refuse" (dict
      "what" "serviceMesh is Ambient but hostNetwork is true"
      "why" "Istio's ambient mesh leaves out pods on their node's network"
      "do" "set one of them to another value") -}}
  {{- end -}}
  {{- if .facts.values.networkPolicy.enabled -}}
    {{- include "horovod.refuse" (dict
      "what" "networkPolicy.enabled is true but hostNetwork is true"
      "why" "a NetworkPolicy does not apply to pods on their node's network"
      "do" "set one of them to false") -}}
  {{- end -}}
  {{- $port := int .facts.values.agent.port -}}
  {{- $ofKubelet := and (ge $port 10248) (le $port 10259) -}}
  {{- $ofServices := and (ge $port 30000) (le $port 32767) -}}
  {{- if or (has $port (list 2379 2380 6443)) $ofKubelet $ofServices -}}
    {{- include "horovod.refuse" (dict
      "what" (printf "hostNetwork is true but agent.port is %d" $port)
      "why" "Kubernetes uses that port on nodes (etcd, API server, kubelet, kube-proxy or node ports)"
      "do" "choose another port") -}}
  {{- end -}}
{{- end -}}
{{- $agent := .facts.values.agent -}}
{{- $metricsPort := .facts.shared.metricsPort | int -}}
{{- if and .facts.values.metrics.enabled (eq (int $agent.port) $metricsPort) -}}
  {{- include "horovod.refuse" (dict
    "what" (printf "metrics.enabled is true but agent.port is %d" $metricsPort)
    "why" "a worker's metrics are on that port"
    "do" "choose another one") -}}
{{- end -}}
{{- $given := printf
  "agent.masterSecret is %q and agent.workerSecret is %q" $agent.masterSecret $agent.workerSecret -}}
{{- if ne (empty $agent.masterSecret) (empty $agent.workerSecret) -}}
  {{- include "horovod.refuse" (dict
    "what" $given
    "do" "give both, or neither and the chart makes the keys") -}}
{{- end -}}
{{- if and $agent.masterSecret (eq $agent.masterSecret $agent.workerSecret) -}}
  {{- include "horovod.refuse" (dict
    "what" $given
    "do" "give two Secrets, because the workers would have the master's key") -}}
{{- end -}}
{{- end }}
