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
