{{/* The run as the master gets it. */}}

{{/*
The run as JSON, which hvd_pods/common/run.py reads. With hostNetwork the master does not have the workers' interface,
so that only the workers' environment names it.
*/}}
{{- define "horovod.run" -}}
{{- $groups := list -}}
{{- range .horovod.groups -}}
{{- $numbers := dict "number" (int .number) "maximum" (int .maximum) "slots" (int .slots) -}}
{{- $groups = append $groups (merge (pick . "statefulSet" "revision" "staged") $numbers) -}}
{{- end -}}
{{- dict
  "id" .horovod.id
  "settings" .horovod.settings
  "service" (include "horovod.service" .)
  "workerSelector" (include "horovod.workerSelector" .)
  "groups" $groups
  "args" (include "horovod.command" . | fromJsonArray)
  "code" (include "horovod.codeVersion" .)
  "codeSha256" (include "horovod.codeSha256" .)
  "codeConfigMap" (ternary (include "horovod.codeConfigMap" .) "" (ne (include "horovod.hasCode" .) ""))
  "requirements" (ne .Values.code.requirements "Ignore")
  "mode" .Values.launch.mode
  "options" .Values.launch.options
  "binding" (include "horovod.binding" .Values.launch.binding | fromYaml)
  "transport" .Values.network.transport
  "hostsTimeoutSeconds" (int .Values.launch.hostsTimeoutSeconds)
  "lostAfterSeconds" (include "horovod.number" (list .Values.launch.lostAfterSeconds 12) | int)
  "stallTimeoutSeconds" (include "horovod.stallTimeout" . | int)
  "failOnNaN" .Values.launch.failOnNaN
  "allowIdleWorkers" .Values.launch.allowIdleWorkers
  "gracePeriodSeconds" (include "horovod.gracePeriod" .Values.master | int)
  "minRanks" (int (.Values.launch.elastic.minRanks | default 1))
  "maxRanks" (int (.Values.launch.elastic.maxRanks | default 0))
  "interface" (ternary "" .Values.network.interface .Values.hostNetwork)
  "agentPort" (int .Values.agent.port)
  "masterName" (include "horovod.certifiedName" (dict "root" . "of" "master"))
  "workerName" (include "horovod.certifiedName" (dict "root" . "of" "worker"))
  "cleanup" .Values.cleanup
  "record" (include "horovod.record" .)
  "results" (include "horovod.resultsSettings" . | fromYaml)
  "api" (ne (include "horovod.serviceAccount" .) "")
  "retries" (ternary (int .Values.master.backoffLimit) 0 (eq (include "horovod.serviceAccount" .) ""))
  | toJson -}}
{{- end }}

{{/* Seconds that a rank may keep the others waiting before the next attempt begins; 0 for no limit. */}}
{{- define "horovod.stallTimeout" -}}
{{ include "horovod.number" (list .Values.launch.stallTimeoutSeconds 3600) }}
{{- end }}

{{- define "horovod.binding" -}}
to: {{ .to | quote }}
coresPerRank: {{ .coresPerRank | default 0 | int }}
ranksPerSocket: {{ .ranksPerSocket | default 0 | int }}
{{- end }}
