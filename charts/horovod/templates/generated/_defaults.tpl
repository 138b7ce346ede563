{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.defaults" -}}
{
  "nameOverride": "",
  "fullnameOverride": "",
  "image": {
    "repository": "",
    "tag": "",
    "digest": "",
    "pullPolicy": "IfNotPresent"
  },
  "imagePullSecrets": [],
  "labels": {},
  "podLabels": {},
  "podAnnotations": {},
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
  "network": {
    "interface": "",
    "transport": ""
  },
  "agent": {
    "port": 2222,
    "generation": 1,
    "masterSecret": "",
    "workerSecret": ""
  },
  "hostNetwork": false,
  "networkPolicy": {},
  "podDisruptionBudget": {
    "enabled": false
  },
  "serviceMesh": "",
  "priorityClassName": "",
  "schedulerName": "",
  "queueName": "",
  "gang": "",
  "gangTopologyKey": "",
  "horovod": {
    "timeline": false,
    "autotune": false
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
    "podMonitor": {},
    "rules": {},
    "dashboard": {},
    "file": "",
    "allowFrom": []
  },
  "volumes": [],
  "volumeMounts": [],
  "staging": {
    "path": "",
    "command": [],
    "image": {},
    "env": [],
    "verify": "Size",
    "nodes": "Preferred"
  },
  "results": {
    "command": [],
    "path": "",
    "image": {},
    "env": [],
    "onFailure": false
  },
  "shm": {
    "sizeLimit": "1Gi"
  },
  "cleanup": "OnSuccess",
  "session": {
    "id": "",
    "leaseSeconds": 0
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
  "extraObjects": []
}
{{- end }}
