{{/* The run as JSON, whose keys are the fields of Run in hvd_pods/shared/run.py. */}}
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
{{- $binding := .facts.values.launch.binding -}}
{{- $launch := .facts.effective.launch -}}
{{- dict
  "id" .facts.id
  "settings_hash" .facts.settingsHash
  "groups" $groups
  "service" .facts.fullname
  "master_selector" .facts.selectors.master
  "worker_selector" .facts.selectors.worker
  "args" .facts.command
  "mode" .facts.values.launch.mode
  "options" .facts.values.launch.options
  "workers_timeout_seconds" (int $launch.workersTimeoutSeconds)
  "interface" .facts.masterInterface
  "agent_port" (int .facts.values.agent.port)
  "master_name" .facts.keys.names.master
  "worker_name" .facts.keys.names.worker
  "cleanup" .facts.values.cleanup
  "record" .facts.record
  "has_api_access" (ne .facts.serviceAccount "")
  "shrink_after_seconds" (int $launch.shrinkAfterSeconds)
  "binding" (dict
    "to" $binding.to
    "cores_per_rank" (int $binding.coresPerRank)
    "ranks_per_socket" (int $binding.ranksPerSocket)
  )
  "transport" .facts.values.network.transport
  "backoff_limit" .facts.retries
  "lost_after_seconds" (int $launch.lostAfterSeconds)
  "is_lost_after_default" (kindIs "invalid" .facts.values.launch.lostAfterSeconds)
  "code" (dict
    "version" .facts.code.version
    "sha256" .facts.code.sha256
    "config_map" .facts.code.configMap
  )
  "installs_requirements" (ne .facts.values.code.requirements "Ignore")
  "stall_timeout_seconds" (int $launch.stallTimeoutSeconds)
  "is_stall_timeout_default" (kindIs "invalid" .facts.values.launch.stallTimeoutSeconds)
  "fail_on_nan" .facts.values.launch.failOnNaN
  "allow_idle_workers" .facts.values.launch.allowIdleWorkers
  "grace_seconds" (int .facts.effective.master.terminationGracePeriodSeconds)
  | toJson -}}
{{- end }}
