{{/* The run as the master gets it. */}}

{{/*
Adds to .facts:
  command, mode     the training command, and what starts it: launch.mode, or direct for a line of horovodrun
  isHorovodrunLine  whether the command is a line of horovodrun, whose ranks mode direct starts
*/}}
{{- define "horovod.prepareCommand" -}}
{{- /* A single Python file is the command itself. */ -}}
{{- $files := keys .facts.code.files -}}
{{- $command := .Values.master.args -}}
{{- $isOneScript := and (eq (len $files) 1) (hasSuffix ".py" (first $files)) (not .Values.code.archive) -}}
{{- if and $isOneScript (not $command) (ne .Values.launch.mode "custom") -}}
  {{- $command = list "python3" (first $files) -}}
{{- end -}}
{{- $_ := set .facts "command" $command -}}
{{- /* Unless it is a custom command, the master starts the ranks of a line of horovodrun itself
(hvd_pods/common/horovodrun.py). */ -}}
{{- $mode := .Values.launch.mode -}}
{{- $isHorovodrunLine := and (ne $mode "custom") (first $command | default "" | base | eq "horovodrun") -}}
{{- $_ := set .facts "isHorovodrunLine" $isHorovodrunLine -}}
{{- $_ := set .facts "mode" (ternary "direct" $mode $isHorovodrunLine) -}}
{{- end }}

{{/*
The run as JSON, which hvd_pods/common/run.py reads. With hostNetwork the master does not have the workers' interface,
so that only the workers' environment names it.
*/}}
{{- define "horovod.run" -}}
{{- $groups := list -}}
{{- range .facts.groups -}}
  {{- $numbers := dict "number" (int .number) "maximum" (int .maximum) "slots" (int .slots) -}}
  {{- $_ := set $numbers "minimum" (int (.minimum | default .number)) -}}
  {{- $groups = append $groups (merge (pick . "statefulSet" "revision" "staged") $numbers) -}}
{{- end -}}
{{- /* The API takes a selector in a query as KEY=VALUE,... */ -}}
{{- $selectors := dict -}}
{{- range $component := list "master" "worker" -}}
  {{- $terms := list -}}
  {{- range $key, $value := include "horovod.selector" (dict "root" $ "component" $component) | fromYaml -}}
    {{- $terms = append $terms (printf "%s=%s" $key $value) -}}
  {{- end -}}
  {{- $_ := join "," $terms | set $selectors $component -}}
{{- end -}}
{{- $binding := dict "to" .Values.launch.binding.to -}}
{{- range $key := list "coresPerRank" "ranksPerSocket" -}}
  {{- $_ := get $.Values.launch.binding $key | default 0 | int | set $binding $key -}}
{{- end -}}
{{- $results := dict -}}
{{- with .facts.effective.results -}}
  {{- if .command -}}{{- $results = dict "timeoutSeconds" (int .timeoutSeconds) "onFailure" .onFailure -}}{{- end -}}
{{- end -}}
{{- $launch := .facts.effective.launch -}}
{{- dict
  "id" .facts.id
  "settingsHash" .facts.settingsHash
  "service" .facts.fullname
  "masterSelector" $selectors.master
  "workerSelector" $selectors.worker
  "groups" $groups
  "args" .facts.command
  "code" .facts.code.version
  "codeSha256" .facts.code.sha256
  "codeConfigMap" .facts.code.configMap
  "requirements" (ne .Values.code.requirements "Ignore")
  "mode" .facts.mode
  "isHorovodrunLine" .facts.isHorovodrunLine
  "options" .Values.launch.options
  "binding" $binding
  "transport" .Values.network.transport
  "workersTimeoutSeconds" (int $launch.workersTimeoutSeconds)
  "lostAfterSeconds" (int $launch.lostAfterSeconds)
  "lossFollowsState" (kindIs "invalid" .Values.launch.lostAfterSeconds)
  "shrinkAfterSeconds" (int $launch.shrinkAfterSeconds)
  "stallTimeoutSeconds" (int $launch.stallTimeoutSeconds)
  "stopsFollowSteps" (kindIs "invalid" .Values.launch.stallTimeoutSeconds)
  "failOnNaN" .Values.launch.failOnNaN
  "allowIdleWorkers" .Values.launch.allowIdleWorkers
  "gracePeriodSeconds" (int .facts.effective.master.terminationGracePeriodSeconds)
  "interface" (ternary "" .Values.network.interface .Values.hostNetwork)
  "agentPort" (int .Values.agent.port)
  "masterName" .facts.keys.names.master
  "workerName" .facts.keys.names.worker
  "cleanup" .Values.cleanup
  "record" .facts.record
  "results" $results
  "api" (ne .facts.serviceAccount "")
  "retries" (ternary (int .Values.master.backoffLimit) 0 (eq .facts.serviceAccount ""))
  | toJson -}}
{{- end }}
