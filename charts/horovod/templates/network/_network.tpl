{{/* The network of the pods: interface, transport, service mesh and NetworkPolicy. */}}

{{- define "horovod.preparePolicies" -}}
{{- /* By default there are NetworkPolicies, because MPI, Gloo, NCCL and TensorBoard have no authentication;
but none for the workers on their nodes' network, to which a NetworkPolicy does not apply. */ -}}
{{- $hasPolicies := ne (toString .Values.networkPolicy.enabled) "false" -}}
{{- $_ := set .facts "hasPolicy" (and $hasPolicies (not .Values.hostNetwork)) -}}
{{- $_ := set .facts "hasTensorboardPolicy" (and $hasPolicies .Values.tensorboard.enabled) -}}
{{- end }}

{{/* The network's settings as variables of each library that ranks use. */}}
{{- define "horovod.networkVariables" -}}
{{- $network := .Values.network -}}
{{- if $network.interface }}
  {{- range (.Files.Get "files/hvd_pods/shared/launcher_options.json" | fromJson).interfaceVariables }}
    {{- if and (has "workers" .setOn) (ne $network.transport (.unlessTransport | default "never")) }}
- {name: {{ .name | quote }}, value: {{ $network.interface | quote }}}
    {{- end }}
  {{- end }}
{{- end }}
{{- if eq $network.transport "TCP" }}
- {name: FI_PROVIDER, value: tcp}
- {name: UCX_TLS, value: "self,sm,tcp"}
- {name: NCCL_IB_DISABLE, value: "1"}
{{- end }}
{{- end }}

{{/*
A rule of a NetworkPolicy for the kubelet's probes, which have these addresses in Istio's ambient mesh:
istio.io, "Ambient and Kubernetes NetworkPolicy". Empty elsewhere.
*/}}
{{- define "horovod.meshProbes" -}}
{{- if eq .Values.serviceMesh "Ambient" -}}
- from:
    - ipBlock: {cidr: 169.254.7.127/32}
    - ipBlock: {cidr: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"}
{{- end -}}
{{- end }}

{{/*
The labels and annotations by which a service mesh knows whether a pod belongs to it, and how, as JSON.
*/}}
{{- define "horovod.meshMetadata" -}}
{{- $mesh := .Values.serviceMesh -}}
{{- $labels := dict -}}
{{- $annotations := dict -}}
{{- if has $mesh (list "Disabled" "Ambient") -}}
  {{- $_ := set $labels "sidecar.istio.io/inject" "false" -}}
  {{- $_ := set $labels "istio.io/dataplane-mode" (ternary "ambient" "none" (eq $mesh "Ambient")) -}}
{{- end -}}
{{- if eq $mesh "Disabled" -}}
  {{- $_ := set $annotations "linkerd.io/inject" "disabled" -}}
{{- else if eq $mesh "Hold" -}}
  {{- /* A native sidecar starts before the init containers and ends with the pod. Meshes that cannot inject
  one hold the containers back until the proxy has started. */ -}}
  {{- $_ := set $annotations "sidecar.istio.io/nativeSidecar" "true" -}}
  {{- $_ := set $annotations "config.beta.linkerd.io/proxy-enable-native-sidecar" "true" -}}
  {{- $_ := set $annotations "proxy.istio.io/config" `{"holdApplicationUntilProxyStarts": true}` -}}
  {{- $_ := set $annotations "config.linkerd.io/proxy-await" "enabled" -}}
{{- end -}}
{{ dict "labels" $labels "annotations" $annotations | toJson }}
{{- end }}
