"""Carries over pod templates of an MPIJob: scheduling, identity, security."""

from __future__ import annotations

from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Plain

_SCHEDULING = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "schedulerName",
    "runtimeClassName",
    "terminationGracePeriodSeconds",
)
_ALL_PODS = ("hostNetwork", "hostPID", "imagePullSecrets", "dnsConfig", "hostAliases")
# Fields of a container's security context that the chart sets for the pod.
_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
_ALREADY_SET = "the chart has one value for all pods, which is already set"
NOT_PRIVILEGED = (
    "not carried over: request devices with resources, and RDMA with the capability IPC_LOCK. For "
    "privileged pods set securityContext: {privileged: true, allowPrivilegeEscalation: true}"
)
RUN_AS_ROOT = (
    "here they run as user 1000 on a read-only root file system. For an image that needs root set "
    "podSecurityContext: {runAsUser: 0, runAsGroup: 0, fsGroup: 0, runAsNonRoot: false}; for a "
    "program that writes into the image set securityContext: {readOnlyRootFilesystem: false}"
)


def carry_over_host(ledger: Ledger) -> None:
    """Which of the node's namespaces all pods use, as charts for Helm have it."""
    for key, new in (("useHostNetwork", "hostNetwork"), ("useHostPID", "hostPID")):
        if ledger.is_true(key):
            ledger.carry_over((key,), (new,), "", True)
            ledger.add_check(f"the Pod Security levels baseline and restricted reject {new}")
        else:
            ledger.drop((key,), "false is the default")


def carry_over_pod(ledger: Ledger, pod: KeyPath, group: str) -> None:
    """What a pod's spec sets outside of its containers; `group` is worker or master."""
    for key in _SCHEDULING:
        if ledger.chart_has((group, key)):
            ledger.carry_over((*pod, key), (group, key))
        else:
            _carry_over_for_all(ledger, pod, key)
    for key in _ALL_PODS:
        if ledger.value_at(*pod, key) is False and key not in ledger.values:
            ledger.drop((*pod, key), "false is the default")
        else:
            _carry_over_for_all(ledger, pod, key)
    if ledger.has((*pod, "serviceAccountName")):
        name = ledger.text_at(*pod, "serviceAccountName")
        path = (*pod, "serviceAccountName")
        if group == "worker":
            ledger.carry_over(path, ("worker", "serviceAccount", "name"), "it has to exist")
            ledger.add_check(
                f"the workers have the service account {name}, which has to exist, without a "
                "token: see worker.automountServiceAccountToken"
            )
        else:
            reason = "the chart makes the master's; for another one set serviceAccount"
            ledger.drop(path, reason)
    ledger.drop((*pod, "serviceAccount"), "an old name of serviceAccountName")
    ledger.drop((*pod, "restartPolicy"), "the chart's StatefulSet and Job set it")


def _carry_over_for_all(ledger: Ledger, pod: KeyPath, key: str) -> None:
    if key in ledger.values:
        ledger.drop((*pod, key), _ALREADY_SET)
    else:
        ledger.carry_over((*pod, key), (key,), "for master and workers")


def carry_over_capabilities(ledger: Ledger, old: KeyPath) -> None:
    """Added capabilities -> worker.capabilities, for the pods that run the ranks.

    Linux gives added capabilities to root's processes only. So the pods run as root unless the
    input sets another user, which has to be in the values before.
    """
    ledger.drop((*old, "drop"), "the chart drops all capabilities that it does not add")
    added = [ledger.text_at(*item) for item in ledger.items_at(*old, "add")]
    context: dict[str, Plain] = ledger.values.get("podSecurityContext", {})
    if not added:
        return
    if context.get("runAsUser", 0) != 0:
        reason = "Linux gives added capabilities to root only, and the pods run as another user"
        ledger.drop((*old, "add"), reason)
        return
    names = [name.removeprefix("CAP_") for name in added]
    ledger.carry_over((*old, "add"), ("worker", "capabilities"), "for the workers", names)
    for key, value in {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}.items():
        ledger.put(("podSecurityContext", key), value, old)
    ledger.add_check(
        "for worker.capabilities the pods run as root, as before. The Pod Security level "
        "restricted rejects root, and baseline rejects capabilities such as IPC_LOCK"
    )


def carry_over_metadata(ledger: Ledger, metadata: KeyPath, group: str) -> None:
    """Labels and annotations of a pod template."""
    for key, new in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        ledger.carry_over((*metadata, key), (group, new))


def carry_over_security(ledger: Ledger, pod: KeyPath, container: KeyPath) -> None:
    """The workers' security contexts -> those of the chart, for all of its pods."""
    ledger.carry_over((*pod, "securityContext"), ("podSecurityContext",))
    old = (*container, "securityContext")
    for key in ledger.map_at(*old):
        path = (*old, key)
        if key == "privileged" and ledger.is_true(*path):
            ledger.drop(path, NOT_PRIVILEGED)
        elif key in _IDENTITY:
            ledger.carry_over(path, ("podSecurityContext", key), "set for the pod")
        elif key != "capabilities":
            ledger.carry_over(path, ("securityContext", key))
    carry_over_capabilities(ledger, (*old, "capabilities"))
    context: dict[str, Plain] = ledger.values.get("podSecurityContext", {})
    if context.get("runAsUser") == 0:
        ledger.put(("podSecurityContext", "runAsNonRoot"), False, old)
    elif "runAsUser" not in context:
        ledger.add_check(f"the pods ran as the image's user, often root; {RUN_AS_ROOT}")
