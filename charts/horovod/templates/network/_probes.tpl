{{/*
A rule of a NetworkPolicy for the kubelet's probes, which have these addresses in Istio's ambient mesh:
istio.io, "Ambient and Kubernetes NetworkPolicy". Empty elsewhere.
*/}}
{{- define "horovod.meshProbes" -}}
{{- if eq .facts.values.serviceMesh "Ambient" -}}
- from:
    - ipBlock: {cidr: 169.254.7.127/32}
    - ipBlock: {cidr: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"}
{{- end -}}
{{- end }}
