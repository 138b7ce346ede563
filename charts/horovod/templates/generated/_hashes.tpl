{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}
{{- define "horovod.hashes" -}}
{
  "identity": {
    "image": {
      "repository": "",
      "tag": "",
      "digest": ""
    },
    "workerGroups": {
      "number": null,
      "slots": null,
      "image": {
        "repository": "",
        "tag": "",
        "digest": ""
      },
      "env": [],
      "envFrom": [],
      "resources": {},
      "nodeSelector": {},
      "affinity": {},
      "tolerations": [],
      "spread": null,
      "capabilities": [],
      "initContainers": [],
      "extraContainers": [],
      "container": {},
      "name": null,
      "volumes": [],
      "volumeMounts": []
    },
    "master": {
      "args": [],
      "image": {
        "repository": "",
        "tag": "",
        "digest": ""
      },
      "env": [],
      "generation": null
    },
    "code": {
      "files": {},
      "archive": "",
      "requirements": "Install"
    },
    "launch": {
      "mode": null,
      "options": [],
      "binding": {
        "to": null,
        "coresPerRank": null,
        "ranksPerSocket": null
      }
    },
    "horovod": {
      "timeline": false,
      "autotune": false,
      "fusionThresholdMiB": null,
      "cycleTimeMs": null
    },
    "volumes": [],
    "volumeMounts": [],
    "staging": {
      "path": "",
      "command": [],
      "image": {
        "repository": "",
        "tag": "",
        "digest": ""
      },
      "env": [],
      "verify": null
    },
    "network": {
      "interface": "",
      "transport": ""
    },
    "hostNetwork": false
  },
  "settings": {
    "image": {
      "repository": "",
      "tag": "",
      "digest": "",
      "pullPolicy": null
    },
    "imagePullSecrets": [],
    "workerGroups": {
      "number": null,
      "spares": null,
      "minimum": null,
      "slots": null,
      "image": {
        "repository": "",
        "tag": "",
        "digest": "",
        "pullPolicy": ""
      },
      "env": [],
      "envFrom": [],
      "resources": {},
      "nodeSelector": {},
      "affinity": {},
      "tolerations": [],
      "spread": null,
      "capabilities": [],
      "podLabels": {},
      "podAnnotations": {},
      "initContainers": [],
      "extraContainers": [],
      "terminationGracePeriodSeconds": null,
      "podSpec": {},
      "container": {},
      "name": null,
      "volumes": [],
      "volumeMounts": []
    },
    "master": {
      "args": [],
      "image": {
        "repository": "",
        "tag": "",
        "digest": "",
        "pullPolicy": ""
      },
      "env": [],
      "envFrom": [],
      "initContainers": [],
      "terminationGracePeriodSeconds": null,
      "podSpec": {},
      "container": {},
      "resources": {},
      "nodeSelector": {},
      "affinity": {},
      "tolerations": [],
      "podLabels": {},
      "podAnnotations": {},
      "generation": null
    },
    "code": {
      "files": {},
      "archive": "",
      "requirements": "Install"
    },
    "launch": {
      "mode": null,
      "options": [],
      "binding": {
        "to": null,
        "coresPerRank": null,
        "ranksPerSocket": null
      },
      "framework": "horovod",
      "preload": null,
      "lostAfterSeconds": null,
      "shrinkAfterSeconds": null,
      "stallTimeoutSeconds": null,
      "failOnNaN": false,
      "allowIdleWorkers": false,
      "workersTimeoutSeconds": null
    },
    "horovod": {
      "timeline": false,
      "autotune": false,
      "fusionThresholdMiB": null,
      "cycleTimeMs": null
    },
    "volumes": [],
    "volumeMounts": [],
    "shm": {
      "sizeLimit": null
    },
    "staging": {
      "path": "",
      "command": [],
      "image": {
        "repository": "",
        "tag": "",
        "digest": "",
        "pullPolicy": ""
      },
      "env": [],
      "verify": null,
      "nodes": "Preferred"
    },
    "network": {
      "interface": "",
      "transport": ""
    },
    "hostNetwork": false,
    "agent": {
      "port": null,
      "generation": null,
      "masterSecret": "",
      "workerSecret": ""
    },
    "serviceMesh": "",
    "gang": "",
    "queueName": "",
    "schedulerName": "",
    "priorityClassName": "",
    "podSecurityContext": {},
    "securityContext": {},
    "serviceAccount": {
      "create": null,
      "name": ""
    },
    "podLabels": {},
    "podAnnotations": {}
  }
}
{{- end }}
