"""Pods of the client's own, for a short time, under the chart's own restrictions. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from hvd_pods.common.contract import NAME_LABEL
from hvdchart.run.state.release import Object

# A user ID without an entry in the image's /etc/passwd, from the range that OpenShift assigns.
UNKNOWN_USER = 1000680000
# How long such a pod may take: its image may have to be pulled first.
POD_SECONDS = 600
# The mount path of the pod's only writable volume.
_SCRATCH = "/tmp"  # noqa: S108


def restricted_pod(purpose: str, image: str, command: Sequence[str]) -> Object:
    """A pod of one container that Pod Security `restricted` admits, with a name of its own.

    The name is known before the pod is created, so that it can be deleted whatever happens.
    """
    container = {
        "name": "probe",
        "image": image,
        "command": list(command),
        "env": [{"name": "HOME", "value": _SCRATCH}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": _SCRATCH}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"hvdchart-{purpose}-{secrets.token_hex(4)}",
            "labels": {NAME_LABEL: f"hvdchart-{purpose}"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": POD_SECONDS,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UNKNOWN_USER,
                "runAsGroup": 0,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }
