{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.retired" -}}
{
  "useHostNetwork": "hostNetwork",
  "useHostPID": "worker.podSpec.hostPID",
  "resources": "worker.resources and master.resources",
  "nodeSelector": "worker.nodeSelector and master.nodeSelector",
  "affinity": "worker.affinity and master.affinity",
  "tolerations": "worker.tolerations and master.tolerations",
  "ssh.port": "agent.port",
  "ssh.generation": "agent.generation",
  "ssh.existingSecret": "agent.masterSecret and agent.workerSecret",
  "ssh.useSecrets": "nothing; the keys are always in Secrets, which the chart makes, or agent.masterSecret and agent.workerSecret name",
  "ssh.hostKey": "agent.workerSecret and agent.masterSecret, or nothing and the chart makes the keys",
  "ssh.hostKeyPub": "nothing; a certificate is beside each key",
  "worker.privileged": "securityContext",
  "master.privileged": "securityContext",
  "worker.podManagementPolicy": "nothing; workers always start in parallel",
  "worker.port": "agent.port",
  "launch.mode=elastic": "launch.mode=direct (or mpirun), worker.minimum, and worker.env for HOROVOD_* and NCCL_* of master.env",
  "launch.mode=horovodrun": "launch.mode=direct over Gloo, with the options in a line of horovodrun in master.args, or launch.mode=mpirun over MPI, which horovodrun took where Horovod had it, unless --gloo was given; and worker.env for HOROVOD_* and NCCL_* of master.env",
  "launch.hostsTimeoutSeconds": "launch.workersTimeoutSeconds, whose default is 1200 and not 600",
  "launch.elastic.minRanks": "worker.minimum, in workers",
  "launch.elastic.maxRanks": "worker.number, the most workers that the run uses",
  "hostPID": "worker.podSpec.hostPID"
}
{{- end }}
