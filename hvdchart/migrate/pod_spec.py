"""Pod templates of an MPIJob -> where the chart says the same: scheduling, identity, security."""

from __future__ import annotations

from hvdchart.migrate.ledger import Reading
from hvdchart.spec.validate import Path
from hvdchart.spec.yaml_tree import Plain

_SCHEDULING = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "schedulerName",
    "runtimeClassName",
)
_OF_ALL_PODS = ("hostNetwork", "hostPID", "imagePullSecrets")
# What of a container's security context decides who the pod is: the chart says that of the pod.
_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")


def keep_pod(reading: Reading, pod: Path, group: str) -> None:
    """Take over what a pod's spec says outside of its containers; group is worker or master."""
    for key in _SCHEDULING:
        if reading.takes((group, key)):
            reading.keep((*pod, key), (group, key))
        elif key in reading.values:
            reading.drop((*pod, key), "one for master and workers: the workers'")
        else:
            reading.keep((*pod, key), (key,), "of master and workers")
    for key in _OF_ALL_PODS:
        if key in reading.values:
            reading.drop((*pod, key), "one for master and workers: the workers'")
        elif reading.find(*pod, key) is False:
            reading.drop((*pod, key), "false is the default")
        else:
            reading.keep((*pod, key), (key,), "of master and workers")
    if reading.has((*pod, "serviceAccountName")):
        name = reading.text_at(*pod, "serviceAccountName")
        why = "workers have none; the master gets one with the rights it needs"
        reading.drop((*pod, "serviceAccountName"), why)
        if group == "worker":
            reading.check(f"workers had the service account {name}: here they have no token")
    reading.drop((*pod, "serviceAccount"), "as serviceAccountName")
    reading.drop((*pod, "restartPolicy"), "the StatefulSet and the Job decide")


def keep_capabilities(reading: Reading, old: Path) -> None:
    """Added capabilities -> the workers', where the ranks run; all others are dropped anyway.

    Linux gives them to processes of root alone, so pods whose user is not said run as root, as
    they did; comes after what says the user.
    """
    reading.drop((*old, "drop"), "the chart drops all that it does not add")
    added = reading.list_at(*old, "add")
    names = [reading.text_at(*old, "add", index) for index in range(len(added))]
    context: dict[str, Plain] = reading.values.get("podSecurityContext", {})
    if not added or context.get("runAsUser", 0) != 0:
        why = "Linux gives added capabilities to root only, and the pods run as another user"
        reading.drop((*old, "add"), why if added else "empty")
        return
    ours = [name.removeprefix("CAP_") for name in names]
    reading.keep((*old, "add"), ("worker", "capabilities"), "of the workers", ours)
    for key, value in {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}.items():
        reading.put(("podSecurityContext", key), value, old)
    reading.check(
        "for the added capabilities the pods run as root, as they did: Pod Security levels "
        "baseline and restricted refuse both"
    )


def keep_annotations(reading: Reading, metadata: Path, group: str) -> None:
    """Labels and annotations of a pod template."""
    for key, ours in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        reading.keep((*metadata, key), (group, ours))


def keep_security(reading: Reading, pod: Path, container: Path) -> None:
    """The workers' security contexts -> the chart's, which all of its pods share."""
    reading.keep((*pod, "securityContext"), ("podSecurityContext",))
    here = (*container, "securityContext")
    for key in reading.map_at(*here):
        path = (*here, key)
        if key == "privileged" and reading.is_true(*path):
            reading.drop(
                path,
                "not taken over: devices come by resources, RDMA by the capability IPC_LOCK; "
                "securityContext: {privileged: true, allowPrivilegeEscalation: true} has it back",
            )
        elif key == "capabilities":
            continue
        elif key in _IDENTITY:
            reading.keep(path, ("podSecurityContext", key), "said once, of the whole pod")
        else:
            reading.keep(path, ("securityContext", key))
    keep_capabilities(reading, (*here, "capabilities"))
    context: dict[str, Plain] = reading.values.get("podSecurityContext", {})
    if context.get("runAsUser") == 0:
        reading.put(("podSecurityContext", "runAsNonRoot"), False, here)
    elif "runAsUser" not in context:
        reading.check(
            "no user is said, so the image's own ran, often root; here pods run as user 1000 on a "
            "read-only root file system. For an image that needs root: podSecurityContext: "
            "{runAsUser: 0, runAsGroup: 0, fsGroup: 0, runAsNonRoot: false}, securityContext: "
            "{readOnlyRootFilesystem: false}"
        )
