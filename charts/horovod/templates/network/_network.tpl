{{/* The network of the pods: interface, transport, service mesh and NetworkPolicy. */}}

{{/*
Adds to .facts:
  hasPolicy             whether master and workers have a NetworkPolicy
  hasTensorboardPolicy  whether TensorBoard has one
*/}}
{{- define "horovod.preparePolicies" -}}
{{- /* By default there are NetworkPolicies, because MPI, Gloo, NCCL and TensorBoard have no authentication; but none for
the workers on their nodes' network, to which a NetworkPolicy does not apply. */ -}}
{{- $hasPolicies := ne (toString .Values.networkPolicy.enabled) "false" -}}
{{- $_ := set .facts "hasPolicy" (and $hasPolicies (not .Values.hostNetwork)) -}}
{{- $_ := set .facts "hasTensorboardPolicy" (and $hasPolicies .Values.tensorboard.enabled) -}}
{{- end }}

{{/* The network's settings as variables of each library that ranks use. */}}
{{- define "horovod.networkVariables" -}}
{{- $network := .Values.network -}}
{{- if $network.interface }}
  {{- range (.Files.Get "files/hvd_pods/common/launcher_options.json" | fromJson).interfaceVariables }}
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
