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
    "network": {
      "interface": "",
      "transport": ""
    },
    "hostNetwork": false,
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
    }
  },
  "settings": {
    "image": {
      "repository": "",
      "tag": "",
      "digest": "",
      "pullPolicy": null
    },
    "imagePullSecrets": [],
    "podLabels": {},
    "podAnnotations": {},
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
    "network": {
      "interface": "",
      "transport": ""
    },
    "agent": {
      "port": null,
      "generation": null,
      "masterSecret": "",
      "workerSecret": ""
    },
    "hostNetwork": false,
    "serviceMesh": "",
    "priorityClassName": "",
    "schedulerName": "",
    "queueName": "",
    "gang": "",
    "gangTopologyKey": "",
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
        "digest": "",
        "pullPolicy": ""
      },
      "env": [],
      "verify": null,
      "nodes": "Preferred"
    },
    "results": {
      "command": [],
      "path": "",
      "image": {
        "repository": "",
        "tag": "",
        "digest": "",
        "pullPolicy": ""
      },
      "env": [],
      "onFailure": false,
      "timeoutSeconds": null
    },
    "shm": {
      "sizeLimit": null
    },
    "podSecurityContext": {},
    "securityContext": {},
    "serviceAccount": {
      "create": null,
      "name": ""
    }
  }
}
{{- end }}
