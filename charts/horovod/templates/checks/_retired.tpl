{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.retired" -}}
{
  "useHostNetwork": "hostNetwork",
  "useHostPID": "hostPID",
  "resources": "worker.resources and master.resources",
  "nodeSelector": "worker.nodeSelector and master.nodeSelector",
  "affinity": "worker.affinity and master.affinity",
  "tolerations": "worker.tolerations and master.tolerations",
  "ssh.useSecrets": "nothing; the keys are always in a Secret, which the chart creates or ssh.existingSecret names",
  "ssh.hostKey": "ssh.existingSecret (key host-key), or nothing and the chart creates a key",
  "ssh.hostKeyPub": "nothing; the public part is derived",
  "worker.privileged": "securityContext",
  "master.privileged": "securityContext",
  "worker.podManagementPolicy": "nothing; workers always start in parallel",
  "worker.port": "ssh.port"
}
{{- end }}
