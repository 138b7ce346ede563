{{/*
What Volcano needs for `gang: Volcano`, as YAML for horovod.prepareGang. queueName is a queue of Volcano then.
*/}}
{{- define "horovod.gangOfVolcano" -}}
podGroup:
  apiVersion: scheduling.volcano.sh/v1beta1
  name: {{ quote .facts.fullname }}
  spec:
    minMember: {{ .facts.gangSize }}
    {{- with .facts.values.queueName }}
    queue: {{ quote . }}
    {{- end }}
    {{- with .facts.values.priorityClassName }}
    priorityClassName: {{ quote . }}
    {{- end }}
annotations:
  scheduling.k8s.io/group-name: {{ quote .facts.fullname }}
schedulerName: volcano
hasQueues: true
{{- end }}
