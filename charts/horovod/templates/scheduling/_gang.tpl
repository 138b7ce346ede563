{{/* The gang: all pods of the run, which start together or not at all. */}}

{{- define "horovod.prepareGang" -}}
{{- $gang := .Values.gang -}}
{{- /* The master and all workers: the run needs each. Spares count, or a scheduler could leave out the
master. */ -}}
{{- $size := add 1 .facts.workers .facts.spares -}}
{{- $apis := dict "Volcano" "scheduling.volcano.sh/v1beta1" -}}
{{- /* The newest one that the cluster has wins. */ -}}
{{- range list "scheduling.k8s.io/v1alpha2" "scheduling.k8s.io/v1alpha3" "scheduling.k8s.io/v1beta1" -}}
  {{- if $.Capabilities.APIVersions.Has (printf "%s/PodGroup" .) -}}
    {{- $_ := set $apis "Kubernetes" . -}}
  {{- end -}}
{{- end -}}
{{- $api := get $apis $gang -}}
{{- $spec := dict -}}
{{- if eq $gang "Kubernetes" -}}
  {{- $_ := set $spec "schedulingPolicy" (dict "gang" (dict "minCount" $size)) -}}
  {{- with .Values.gangTopologyKey -}}
    {{- $_ := set $spec "schedulingConstraints" (dict "topology" (list (dict "key" .))) -}}
  {{- end -}}
  {{- if eq $api "scheduling.k8s.io/v1beta1" -}}
    {{- /* A run without its last worker only holds its nodes, unless a spare or a minimum lets it go
    on. */ -}}
    {{- $goesOn := gt (int .facts.spares) 0 -}}
    {{- range .facts.groups }}{{ $goesOn = or $goesOn (gt (int .minimum) 0) }}{{ end -}}
    {{- $_ := set $spec "disruptionMode" (dict (ternary "single" "all" $goesOn) dict) -}}
  {{- end -}}
{{- else -}}
  {{- $_ := set $spec "minMember" $size -}}
{{- end -}}
{{- if and (eq $gang "Volcano") .Values.queueName -}}
  {{- $_ := set $spec "queue" .Values.queueName -}}
{{- end -}}
{{- with .Values.priorityClassName -}}
  {{- $_ := set $spec "priorityClassName" . -}}
{{- end -}}
{{- /* Kubernetes lets nobody change the specification of its PodGroups: another one is another object. */ -}}
{{- $suffix := ternary (printf "-%s" ($spec | toJson | sha256sum | trunc 8)) "" (eq $gang "Kubernetes") -}}
{{- $_ := set .facts "gangSize" $size -}}
{{- $_ := set .facts "podGroup" (printf "%s%s" .facts.fullname $suffix) -}}
{{- $_ := set .facts "gangApi" $api -}}
{{- $_ := set .facts "gangSpec" $spec -}}
{{- $_ := set .facts "schedulerName" (.Values.schedulerName | default (ternary "volcano" "" (eq $gang "Volcano"))) -}}
{{- end }}
