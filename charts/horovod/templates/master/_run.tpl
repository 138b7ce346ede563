{{/*
The run as JSON, whose keys are the fields of Run in hvd_pods/shared/run.py. With hostNetwork the master does
not have the workers' interface, so that only the workers' environment names it.
*/}}
{{- define "horovod.run" -}}
{{- $groups := list -}}
{{- range .facts.groups -}}
  {{- $groups = append $groups (dict
    "stateful_set" .statefulSet
    "number" (int .number)
    "minimum" (int (.minimum | default .number))
    "maximum" (int .maximum)
    "slots" (int .slots)
    "revision" .revision
    "staged" .staged
  ) -}}
{{- end -}}
{{- $binding := .Values.launch.binding -}}
{{- $launch := .facts.effective.launch -}}
{{- $results := .facts.effective.results -}}
{{- dict
  "id" .facts.id
  "settings_hash" .facts.settingsHash
  "groups" $groups
  "service" .facts.fullname
  "master_selector" .facts.selectors.master
  "worker_selector" .facts.selectors.worker
  "args" .facts.command
  "mode" .Values.launch.mode
  "options" .Values.launch.options
  "workers_timeout_seconds" (int $launch.workersTimeoutSeconds)
  "interface" (ternary "" .Values.network.interface .Values.hostNetwork)
  "agent_port" (int .Values.agent.port)
  "master_name" .facts.keys.names.master
  "worker_name" .facts.keys.names.worker
  "cleanup" .Values.cleanup
  "record" .facts.record
  "has_api_access" (ne .facts.serviceAccount "")
  "shrink_after_seconds" (int $launch.shrinkAfterSeconds)
  "binding" (dict
    "to" $binding.to
    "cores_per_rank" (int $binding.coresPerRank)
    "ranks_per_socket" (int $binding.ranksPerSocket)
  )
  "transport" .Values.network.transport
  "backoff_limit" (ternary (int .Values.master.backoffLimit) 0 (eq .facts.serviceAccount ""))
  "lost_after_seconds" (int $launch.lostAfterSeconds)
  "is_lost_after_default" (kindIs "invalid" .Values.launch.lostAfterSeconds)
  "code" (dict
    "version" .facts.code.version
    "sha256" .facts.code.sha256
    "config_map" .facts.code.configMap
  )
  "installs_requirements" (ne .Values.code.requirements "Ignore")
  "stall_timeout_seconds" (int $launch.stallTimeoutSeconds)
  "is_stall_timeout_default" (kindIs "invalid" .Values.launch.stallTimeoutSeconds)
  "fail_on_nan" .Values.launch.failOnNaN
  "allow_idle_workers" .Values.launch.allowIdleWorkers
  "grace_seconds" (int .facts.effective.master.terminationGracePeriodSeconds)
  "results_timeout_seconds" (ternary 0 (int $results.timeoutSeconds) (empty $results.command))
  "results_on_failure" $results.onFailure
  | toJson -}}
{{- end }}
