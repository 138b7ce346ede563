"""Carry over common parts of operators' jobs: names, pod templates, run policies. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hvdchart.migrate import pod_spec
from hvdchart.migrate.ledger import Ledger
from hvdchart.spec.paths import KeyPath

# The operator cleans up when a job ends, whether it succeeded or failed.
_CLEANUP = {"All": "Always", "Running": "Always", "None": "Never"}
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_SIDECAR_VALUES = {
    "worker": "worker.extraContainers",
    "master": "master.initContainers, with restartPolicy: Always",
}


@dataclass(frozen=True)
class Role:
    """The launcher or the workers: the path of the object with `template`, and of its container."""

    owner: KeyPath
    container: KeyPath

    @property
    def pod(self) -> KeyPath:
        """The path of the pod's spec."""
        return (*self.owner, "template", "spec")


def find_role(ledger: Ledger, owner: KeyPath, main: str = "") -> Role:
    """Return the role at a path, with its container `main` or the first. Raises SpecError."""
    containers = ledger.items_at(*owner, "template", "spec", "containers")
    if not containers:
        expected = "a container: launcher and workers have one"
        raise ledger.type_error((*owner, "template", "spec", "containers"), expected)
    for path in containers:
        ledger.map_at(*path)
    named = [path for path in containers if main and ledger.text_at(*path, "name") == main]
    return Role(owner, (named or containers)[0])


def carry_over_names(ledger: Ledger, kind: str) -> None:
    """Convert the metadata of the manifest."""
    for key in ("apiVersion", "kind"):
        ledger.drop((key,), "the chart makes a StatefulSet and a Job instead")
    names = [ledger.text_at("metadata", key) for key in ("name", "generateName", "namespace")]
    ledger.release = names[0] or names[1]
    ledger.namespace = names[2]
    for key, option in (
        ("name", "helm install NAME"),
        ("generateName", "helm install NAME"),
        ("namespace", "helm --namespace"),
    ):
        if ledger.has(("metadata", key)):
            ledger.change(("metadata", key), (option,))
    ledger.carry_over(("metadata", "labels", KUEUE_LABEL), ("queueName",), "Kueue's LocalQueue")
    ledger.drop(("metadata",), f"of the {kind} object, which Helm does not make")
    ledger.drop(("status",), "the operator writes it")


def carry_over_template(ledger: Ledger, role: Role, group: str) -> None:
    """Carry over a pod template's fields outside of its containers; `group` is worker or master."""
    pod_spec.carry_over_pod(ledger, role.pod, group)
    for key, new in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        ledger.carry_over((*role.owner, "template", "metadata", key), (group, new))


def carry_over_container(ledger: Ledger, role: Role, group: str) -> None:
    """Convert the rest of the main container, and the containers beside it."""
    ledger.carry_over((*role.container, "envFrom"), (group, "envFrom"))
    workdir = (group, "container", "workingDir")
    ledger.carry_over((*role.container, "workingDir"), workdir)
    _carry_over_other_containers(ledger, role, group)
    reason = "master.backoffLimit sets the number of retries"
    ledger.drop((*role.owner, "restartPolicy"), reason)
    ledger.drop((*role.container, "name"), "the chart names its containers worker and master")
    ledger.drop((*role.container, "ports"), "the chart opens agent.port")


def _carry_over_other_containers(ledger: Ledger, role: Role, group: str) -> None:
    """Map containers before the main one to initContainers; leave out those beside it."""
    first = (*role.pod, "initContainers")
    ledger.carry_over(first, (group, "initContainers"))
    if ledger.list_at(*first):
        ledger.add_check(
            f"{group}.initContainers need a securityContext of their own under Pod Security "
            "restricted"
        )
    for path in ledger.items_at(*role.pod, "containers"):
        if path != role.container:
            ledger.leave_out(path, "copy it into " + _SIDECAR_VALUES[group])


def carry_over_run_policy(ledger: Ledger) -> None:
    for policy in (("spec", "runPolicy"), ("spec",)):
        for key in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
            path = (*policy, key)
            ledger.carry_over(path, ("master", key), "", ledger.integer_at(*path))
        path = (*policy, "suspend")
        ledger.carry_over(path, ("master", "suspend"), "", ledger.is_true(*path))
        ledger.drop((*policy, "managedBy"), "the chart's objects have no other controller")
        _carry_over_cleanup(ledger, (*policy, "cleanPodPolicy"))
    clean_up_for_ttl(ledger)
    scheduling: KeyPath = ("spec", "runPolicy", "schedulingPolicy")
    ledger.carry_over((*scheduling, "priorityClass"), ("priorityClassName",))
    what = "set gang to Volcano or Kubernetes, and with Volcano queueName to its queue"
    ledger.leave_out(scheduling, what)


def _carry_over_cleanup(ledger: Ledger, path: KeyPath) -> None:
    """Convert the operator's cleanPodPolicy to `cleanup`."""
    word = ledger.text_at(*path)
    if word and word not in _CLEANUP:
        raise ledger.type_error(path, f"one of {', '.join(_CLEANUP)}")
    ledger.carry_over(path, ("cleanup",), "the same meaning", _CLEANUP.get(word))


def clean_up_for_ttl(ledger: Ledger) -> None:
    """Set cleanup to Always if a time to live would leave the workers of a failed run."""
    if "ttlSecondsAfterFinished" in ledger.values.get("master", {}) and (
        ledger.values.get("cleanup") != "Always"
    ):
        ledger.replace(("cleanup",), "Always")
        ledger.add_check(
            "cleanup is Always, because ttlSecondsAfterFinished deletes the Job and would leave "
            "the workers of a failed run"
        )


def drop_all(ledger: Ledger, above: KeyPath, reasons: dict[str, str]) -> None:
    for key, reason in reasons.items():
        ledger.drop((*above, key), reason)
