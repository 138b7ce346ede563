{{/* The gang: its API, and what its containers request. */}}

{{/* The newest version of Kubernetes' own PodGroup that the cluster has; fails where it has none. */}}
{{- define "horovod.kubernetesGang" -}}
{{- $served := list -}}
{{- $versions := list "v1beta1" "v1alpha3" "v1alpha2" -}}
{{- range $versions -}}
{{- $api := printf "scheduling.k8s.io/%s" . -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/PodGroup" $api) }}{{ $served = append $served $api }}{{ end -}}
{{- end -}}
{{- if not $served -}}
{{- $problem := "gang is Kubernetes but the cluster has no PodGroup of scheduling.k8s.io" -}}
{{- $remedy := "enable the feature gate GenericWorkload and that API, or set gang to Volcano or SchedulerPlugins" -}}
{{- $option := "when you render without the cluster, name it: --api-versions scheduling.k8s.io/v1beta1/PodGroup" -}}
{{- fail (printf "%s (%s): %s; %s" $problem (join ", " $versions) $remedy $option) -}}
{{- end -}}
{{ first $served }}
{{- end }}

{{/* A quantity such as 100m, 1.5Gi or 2e9 as a number. */}}
{{- define "horovod.quantity" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $units = merge $units (dict "Ti" 1099511627776 "Pi" 1125899906842624) -}}
{{- $value := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" (toString .) -}}
{{- mulf (float64 $value) (trimPrefix $value (toString .) | get $units) -}}
{{- end }}

{{/*
What the gang's containers request together, as YAML. A request that is not given is the limit, as in Kubernetes.
CPU is in thousandths, other resources in whole units.
*/}}
{{- define "horovod.gangResources" -}}
{{- $sums := dict -}}
{{- range prepend .horovod.groups (dict "maximum" 1 "resources" .Values.master.resources) -}}
{{- $number := .maximum -}}
{{- range $name, $amount := list .resources.limits .resources.requests | include "horovod.layered" | fromYaml -}}
{{- $part := mulf (include "horovod.quantity" $amount) $number (ternary 1000 1 (eq $name "cpu")) -}}
{{- $_ := set $sums $name (addf $part (get $sums $name | default 0)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $sum := $sums }}
{{ $name }}: {{ printf "%d%s" ($sum | ceil | int64) (ternary "m" "" (eq $name "cpu")) | quote }}
{{- end -}}
{{- end }}
