"""Values that several tests render the chart with."""

from __future__ import annotations

import json

from tests.chart.render import Values, ready_cases

# The API that a cluster has for `gang: Kubernetes`.
KUBERNETES_GANG = ("scheduling.k8s.io/v1beta1/PodGroup",)
# With these the chart renders every pod and every container that it has.
EVERY_POD: Values = {
    "podSecurityContext": {"runAsUser": None},
    "tensorboard": {"enabled": True, "logDir": "/data/logs"},
    "staging": {"command": ["true"], "path": "/data/set"},
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
GROUPS: Values = {
    "worker": {"number": 3, "env": [{"name": "A", "value": "1"}]},
    "workerGroups": [
        {"name": "cpu", "slots": 2},
        {
            "name": "gpu",
            "number": 2,
            "slots": 4,
            "resources": {"limits": {"nvidia.com/gpu": 4}},
            "env": [{"name": "B", "value": "2"}],
            "image": {"tag": "cuda"},
        },
    ],
}
# One group inherits the spares, one has none.
SPARES: Values = {
    "worker": {"number": 2, "slots": 2, "spares": 3, "resources": {"requests": {"cpu": 1}}},
    "workerGroups": [{"name": "a"}, {"name": "b", "number": 1, "spares": 0}],
}
GPU_GROUPS: Values = {
    "workerGroups": [
        {"name": "cpu", "number": 3, "spread": "None"},
        {"name": "gpu", "number": 2, "spread": "Required"},
    ]
}
DATA: Values = {
    "volumes": [
        {"name": "data", "hostPath": {"path": "/mnt/data"}},
        {"name": "other", "emptyDir": {}},
    ],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "x"},
        {"name": "other", "mountPath": "/data-of-others", "readOnly": True},
    ],
}
STAGING: Values = {"path": "/data/set", "command": ["curl", "-fO", "https://host.example/set"]}


def on_disk(path: str, **mount: object) -> Values:
    """A directory of the node as the volume for the data."""
    return {
        "volumes": [{"name": "data", "hostPath": {"path": path}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", **mount}],
    }


OUTPUT: Values = {
    "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/output/run"}]},
    "volumes": [
        {"name": "output", "hostPath": {"path": "/mnt"}},
        {"name": "x", "nfs": {"server": "s", "path": "/"}},
    ],
    "volumeMounts": [
        {"name": "x", "mountPath": "/out"},
        {"name": "output", "mountPath": "/output"},
    ],
}
PROBE = {"exec": {"command": ["true"]}}
CONTAINER = {"name": "log-shipper", "image": "registry.example/log:1"}
NATIVE = {"name": "proxy", "image": "registry.example/proxy:1", "restartPolicy": "Always"}
HOST_ALIAS = {"ip": "192.0.2.1", "hostnames": ["data.example"]}
ADDITIONS: Values = {
    "podLabels": {"team": "vision"},
    "podAnnotations": {"cost": "42"},
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "mine"},
            "data": {"text": "{{ not a template }}"},
        }
    ],
    "worker": {
        "envFrom": [{"secretRef": {"name": "credentials"}}],
        "initContainers": [NATIVE],
        "extraContainers": [CONTAINER],
        "terminationGracePeriodSeconds": 0,
        "podSpec": {"shareProcessNamespace": True},
        "container": {"livenessProbe": PROBE},
    },
    "master": {
        "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
        "initContainers": [NATIVE],
        "terminationGracePeriodSeconds": 120,
        "podSpec": {"hostAliases": [HOST_ALIAS]},
        "container": {"lifecycle": {"preStop": PROBE}},
    },
}
# A volume at /tmp, whose path may be written in several ways, and one that a group replaces.
OWN_TMP: Values = {
    "tensorboard": {"enabled": True, "logDir": "/tmp/logs"},
    "staging": {"command": ["true"], "path": "/data//set"},
    "volumes": [
        {"name": "scratch", "hostPath": {"path": "/mnt/scratch"}},
        {"name": "data", "hostPath": {"path": "/mnt/data"}},
    ],
    "volumeMounts": [
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": "data", "mountPath": "/data", "readOnly": True},
    ],
    "workerGroups": [
        {"name": "a", "volumeMounts": [{"name": "data", "mountPath": "data/", "subPath": "a"}]}
    ],
}
# What the API server accepts, and each released version of its schemas.
CASES: dict[str, Values] = {
    "groups": GROUPS,
    "foreign UID": {"podSecurityContext": {"runAsUser": None}},
    "scheduling": {
        "worker": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "podAnnotations": {"x": "y"},
        },
        "master": {"activeDeadlineSeconds": 60, "podLabels": {"x": "y"}},
        "cleanup": "Always",
        "priorityClassName": "system-cluster-critical",
        "schedulerName": "mine",
        "queueName": "team",
        "podDisruptionBudget": {"enabled": True},
    },
    "network": {
        "hostNetwork": True,
        "network": {"interface": "ib0"},
        "podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "worker": {"capabilities": ["IPC_LOCK"], "podSpec": {"hostPID": True}},
        "serviceMesh": "Disabled",
    },
    "watching": {
        **OUTPUT,
        "horovod": {"timeline": True, "autotune": True, "cycleTimeMs": 3},
        "tensorboard": {"enabled": True},
        "metrics": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "serviceMesh": "Hold",
    },
    "staging": {**DATA, "staging": STAGING},
    "own tmp": OWN_TMP,
    "data in own tmp": {**OWN_TMP, "staging": {"command": ["true"], "path": "//tmp/set"}},
    "additions to pods": ADDITIONS,
    "named account": {"serviceAccount": {"create": False, "name": "masters"}},
    "overridden variables": {
        "worker": {"env": [{"name": "I_MPI_PIN", "value": "1"}, {"name": "A", "value": "1"}]},
        # Names that YAML reads as something else than text.
        "workerGroups": [{"name": "no", "env": [{"name": "A", "value": "2"}]}, {"name": "true"}],
        "master": {"env": [{"name": "HOME", "value": "/home"}]},
    },
    **ready_cases(),
}


def case_id(part: Values | list[str]) -> str:
    """Return the name of a case, which its values make."""
    return json.dumps(part) if isinstance(part, dict) else ""
