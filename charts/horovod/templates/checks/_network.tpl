{{/* Refusals of network settings. */}}

{{- define "horovod.checkNetwork" -}}
{{- if .Values.hostNetwork -}}
  {{- if eq .Values.serviceMesh "Ambient" -}}
    {{- $why :=
      "Istio's ambient mesh leaves out pods on their node's network; set one of them to another value" -}}
    {{- fail (printf "serviceMesh is Ambient but hostNetwork is true: %s" $why) -}}
  {{- end -}}
  {{- if .Values.networkPolicy.enabled -}}
    {{- $why := "a NetworkPolicy does not apply to pods on their node's network; set one of them to false" -}}
    {{- fail (printf "networkPolicy.enabled is true but hostNetwork is true: %s" $why) -}}
  {{- end -}}
  {{- $port := int .Values.agent.port -}}
  {{- $ofKubelet := and (ge $port 10248) (le $port 10259) -}}
  {{- $ofServices := and (ge $port 30000) (le $port 32767) -}}
  {{- if or (has $port (list 2379 2380 6443)) $ofKubelet $ofServices -}}
    {{- $users := "etcd, API server, kubelet, kube-proxy or node ports" -}}
    {{- $remedy := printf "Kubernetes uses that port on nodes (%s); choose another port" $users -}}
    {{- fail (printf "hostNetwork is true but agent.port is %d: %s" $port $remedy) -}}
  {{- end -}}
{{- end -}}
{{- end }}
