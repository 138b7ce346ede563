{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.notHashed" -}}
{
  "identity": {
    "nameOverride": true,
    "fullnameOverride": true,
    "image": {
      "pullPolicy": true
    },
    "imagePullSecrets": true,
    "podLabels": true,
    "podAnnotations": true,
    "dnsConfig": true,
    "hostAliases": true,
    "worker": {
      "spares": true,
      "podLabels": true,
      "podAnnotations": true,
      "serviceAccount": true,
      "automountServiceAccountToken": true,
      "terminationGracePeriodSeconds": true,
      "podSpec": true
    },
    "master": {
      "envFrom": true,
      "initContainers": true,
      "terminationGracePeriodSeconds": true,
      "podSpec": true,
      "container": true,
      "resources": true,
      "nodeSelector": true,
      "affinity": true,
      "tolerations": true,
      "topologySpreadConstraints": true,
      "runtimeClassName": true,
      "podLabels": true,
      "podAnnotations": true,
      "backoffLimit": true,
      "suspend": true,
      "ttlSecondsAfterFinished": true,
      "activeDeadlineSeconds": true
    },
    "launch": {
      "preload": true,
      "lostAfterSeconds": true,
      "stallTimeoutSeconds": true,
      "failOnNaN": true,
      "hostsTimeoutSeconds": true
    },
    "ssh": true,
    "networkPolicy": true,
    "podDisruptionBudget": true,
    "serviceMesh": true,
    "priorityClassName": true,
    "schedulerName": true,
    "queueName": true,
    "gang": true,
    "tensorboard": true,
    "metrics": true,
    "staging": {
      "nodes": true
    },
    "results": true,
    "shm": true,
    "cleanup": true,
    "podSecurityContext": true,
    "securityContext": true,
    "serviceAccount": true,
    "extraObjects": true,
    "enabled": true,
    "global": true
  },
  "settings": {
    "nameOverride": true,
    "fullnameOverride": true,
    "master": {
      "backoffLimit": true,
      "suspend": true,
      "ttlSecondsAfterFinished": true,
      "activeDeadlineSeconds": true
    },
    "networkPolicy": true,
    "podDisruptionBudget": true,
    "tensorboard": true,
    "metrics": true,
    "cleanup": true,
    "serviceAccount": {
      "annotations": true
    },
    "extraObjects": true,
    "enabled": true,
    "global": true
  }
}
{{- end }}
