{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.defaults" -}}
{
  "image": {
    "repository": "",
    "tag": "",
    "digest": "",
    "pullPolicy": "IfNotPresent"
  },
  "imagePullSecrets": [],
  "worker": {
    "number": 2,
    "slots": 1,
    "image": {},
    "env": [],
    "envFrom": [],
    "resources": {},
    "nodeSelector": {},
    "affinity": {},
    "tolerations": [],
    "spread": "Preferred",
    "capabilities": [],
    "podLabels": {},
    "podAnnotations": {},
    "initContainers": [],
    "extraContainers": [],
    "podSpec": {},
    "container": {}
  },
  "workerGroups": [],
  "master": {
    "args": [],
    "image": {},
    "env": [],
    "envFrom": [],
    "initContainers": [],
    "podSpec": {},
    "container": {},
    "resources": {},
    "nodeSelector": {},
    "affinity": {},
    "tolerations": [],
    "podLabels": {},
    "podAnnotations": {},
    "generation": 1,
    "backoffLimit": 3,
    "suspend": false
  },
  "code": {
    "files": {},
    "archive": "",
    "requirements": "Install"
  },
  "launch": {
    "mode": "mpirun",
    "options": [],
    "binding": {
      "to": "none"
    },
    "framework": "horovod",
    "failOnNaN": false,
    "allowIdleWorkers": false,
    "workersTimeoutSeconds": 1200
  },
  "horovod": {
    "timeline": false,
    "autotune": false
  },
  "volumes": [],
  "volumeMounts": [],
  "shm": {
    "sizeLimit": "1Gi"
  },
  "staging": {
    "path": "",
    "command": [],
    "image": {},
    "env": [],
    "verify": "Size",
    "nodes": "Preferred"
  },
  "cleanup": "OnSuccess",
  "session": {
    "id": "",
    "leaseSeconds": 0
  },
  "network": {
    "interface": "",
    "transport": ""
  },
  "hostNetwork": false,
  "agent": {
    "port": 2222,
    "generation": 1,
    "masterSecret": "",
    "workerSecret": ""
  },
  "serviceMesh": "",
  "networkPolicy": {},
  "gang": "",
  "queueName": "",
  "schedulerName": "",
  "priorityClassName": "",
  "podDisruptionBudget": {
    "enabled": false
  },
  "tensorboard": {
    "enabled": false,
    "logDir": "",
    "image": {},
    "resources": {},
    "allowFrom": []
  },
  "metrics": {
    "enabled": false,
    "port": 9400,
    "podMonitor": {},
    "rules": {},
    "dashboard": {},
    "allowFrom": []
  },
  "podSecurityContext": {},
  "securityContext": {},
  "serviceAccount": {
    "create": true,
    "name": "",
    "annotations": {}
  },
  "rbac": {
    "create": true
  },
  "nameOverride": "",
  "fullnameOverride": "",
  "labels": {},
  "podLabels": {},
  "podAnnotations": {},
  "extraObjects": []
}
{{- end }}
