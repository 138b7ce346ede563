"""Short-lived pods of the client, under the chart's own restrictions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Sequence

from hvd_pods.shared.contract import NAME_LABEL
from hvdchart.errors import ClusterError
from hvdchart.run.kube.api import is_temporary
from hvdchart.run.kube.cluster import WATCH_SECONDS, Cluster
from hvdchart.run.state.release import Object
from hvdchart.run.state.run_problems import problem_of

# A user ID without an entry in the image's /etc/passwd, from the range that OpenShift assigns.
UNKNOWN_USER_ID = 1000680000
# Seconds for such a pod: an image of many GB may have to be pulled first.
POD_TIMEOUT_SECONDS = 3600
# Seconds before a watch is opened again.
_WATCH_RETRY_DELAY_SECONDS = 1.0
# The mount path of the pod's only writable volume.
_SCRATCH = "/tmp"  # noqa: S108


def restricted_pod(purpose: str, image: str, command: Sequence[str]) -> Object:
    """Return a pod with one container and a unique name that Pod Security `restricted` admits.

    The name is known before the pod is created, so the pod can always be deleted.
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
            "activeDeadlineSeconds": POD_TIMEOUT_SECONDS,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UNKNOWN_USER_ID,
                "runAsGroup": 0,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def wait_for_pod(cluster: Cluster, name: str, phases: Collection[str]) -> Object:
    """Wait until a pod is in one of these phases; return the pod.

    Raises ClusterError when it cannot start or is deleted, and when it is in none after
    POD_TIMEOUT_SECONDS.
    """
    until = time.monotonic() + POD_TIMEOUT_SECONDS
    while time.monotonic() < until:
        for pod in _states(cluster, name):
            if pod["status"].get("phase") in phases:
                return pod
            problem = problem_of(pod, [])
            if problem:
                raise ClusterError(f"pod {name}: {problem.reason}; {problem.remedy}")
        time.sleep(_WATCH_RETRY_DELAY_SECONDS)
    raise ClusterError(f"pod {name} is not {' or '.join(phases)} after {POD_TIMEOUT_SECONDS} s")


def _states(cluster: Cluster, name: str) -> Iterator[Object]:
    """Yield a pod now and after each change, until its watch ends or breaks.

    Raises a refusal: there is no such pod, for example.
    """
    try:
        changes = cluster.watch("pods", WATCH_SECONDS, field=f"metadata.name={name}")
        # The watch does not show that the pod was deleted before.
        yield cluster.pod(name)
        for change, pod in changes:
            if change == "DELETED":
                # The next reading reports it.
                return
            yield pod
    except ClusterError as error:
        if not is_temporary(error):
            raise


def run_pod(cluster: Cluster, pod: Object) -> str:
    """Create a pod of one container, wait for its end, delete it; return its output.

    Raises ClusterError as `wait_for_pod` does. The result of the pod does not matter.
    """
    name = pod["metadata"]["name"]
    with cluster.present("pods", pod):
        wait_for_pod(cluster, name, ("Succeeded", "Failed"))
        (container,) = pod["spec"]["containers"]
        return "\n".join(cluster.log(name, container["name"]))
