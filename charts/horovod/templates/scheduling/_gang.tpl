{{/* The gang: all pods of the run, which start together or not at all. */}}

{{- define "horovod.prepareGang" -}}
{{- $gang := .Values.gang -}}
{{- $apis := dict "Volcano" "scheduling.volcano.sh/v1beta1" -}}
{{- /* The newest one that the cluster has wins. */ -}}
{{- range list "scheduling.k8s.io/v1alpha2" "scheduling.k8s.io/v1alpha3" "scheduling.k8s.io/v1beta1" -}}
  {{- if $.Capabilities.APIVersions.Has (printf "%s/PodGroup" .) -}}
    {{- $_ := set $apis "Kubernetes" . -}}
  {{- end -}}
{{- end -}}
{{- /* The master and all workers: the run needs each. Spares count, or a scheduler could leave out the
master. */ -}}
{{- $_ := set .facts "gangSize" (add 1 .facts.workers .facts.spares) -}}
{{- $_ := set .facts "gangApi" (get $apis $gang) -}}
{{- $_ := set .facts "podGroup" .facts.fullname -}}
{{- if eq $gang "Kubernetes" -}}
  {{- /* Kubernetes lets nobody change the specification of a PodGroup: another one is another object. */ -}}
  {{- $hash := include "horovod.gangSpec" . | fromYaml | toJson | sha256sum | trunc 8 -}}
  {{- $_ := set .facts "podGroup" (printf "%s-%s" .facts.fullname $hash) -}}
{{- end -}}
{{- $own := ternary "volcano" "" (eq $gang "Volcano") -}}
{{- $_ := set .facts "schedulerName" (.Values.schedulerName | default $own) -}}
{{- end }}

{{/* The specification of the PodGroup. */}}
{{- define "horovod.gangSpec" -}}
{{- if eq .Values.gang "Volcano" -}}
minMember: {{ .facts.gangSize }}
{{- with .Values.queueName }}
queue: {{ . | quote }}
{{- end }}
{{- else -}}
schedulingPolicy: {gang: {minCount: {{ .facts.gangSize }}}}
{{- with .Values.gangTopologyKey }}
schedulingConstraints: {topology: [{key: {{ . | quote }}}]}
{{- end }}
{{- if eq .facts.gangApi "scheduling.k8s.io/v1beta1" }}
{{- /* A run without its last worker only holds its nodes, unless a spare or a minimum lets it go on. */}}
{{- $goesOn := gt (int .facts.spares) 0 }}
{{- range .facts.groups }}{{ $goesOn = or $goesOn (gt (int .minimum) 0) }}{{ end }}
disruptionMode: { {{- ternary "single" "all" $goesOn }}: {}}
{{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}
