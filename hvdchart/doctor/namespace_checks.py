"""Whether a namespace admits the pods of a run, and has their claims: Pod Security, claims, workers
that hold resources. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hvdchart.doctor.findings import Finding
from hvdchart.doctor.needs import Values
from hvdchart.doctor.pod_security import ENFORCE, LEVELS, PRIVILEGED, RESTRICTED, policy_version
from hvdchart.doctor.security_needs import security_needs
from hvdchart.quantity import pluralize
from hvdchart.run.state.release import Object
from hvdchart.run.state.status import Status
from hvdchart.run.state.status_text import removal_command
from hvdchart.text import join_names

_MANY_NODES = {"ReadWriteMany", "ReadOnlyMany"}


def examine_security(namespace: Object, server: str, values: Values) -> Finding:
    """Check whether Pod Security admits the pods; `server` is the version of Kubernetes."""
    labels = namespace["metadata"].get("labels") or {}
    enforced = labels.get(ENFORCE, PRIVILEGED)
    subject = "Pod Security"
    needs = security_needs(values, policy_version(labels, server))
    level = max([RESTRICTED, *needs.values()], key=LEVELS.index)
    if enforced in LEVELS and LEVELS.index(enforced) < LEVELS.index(level):
        refused = [name for name in needs if LEVELS.index(enforced) < LEVELS.index(needs[name])]
        return Finding(
            subject,
            "problem",
            f"the namespace enforces {enforced}, and the pods need {level} for "
            f"{join_names(refused)}",
            f"change that, or ask for the label {ENFORCE}={level}",
        )
    return Finding(subject, "ok", f"the namespace enforces {enforced}; the pods need {level}")


def examine_workers(runs: Iterable[Status], namespace: str) -> Iterator[Finding]:
    """Find workers that use resources, but have no master: nothing in the cluster ends them."""
    for run in runs:
        if run.lacks_master:
            number = pluralize(run.workers_wanted + run.spares_wanted, "worker")
            text = f"{run.name}: {number} have no master: {run.reason}"
            yield Finding(
                "workers", "problem", text, f"remove them: {removal_command(run, namespace)}"
            )


def examine_claims(
    claims: Mapping[str, Object | None], classes: Sequence[Object] | None, workers: int
) -> Iterator[Finding]:
    """Check whether the claims exist, are bound, and can be mounted on several nodes."""
    waiting = {
        str(storage_class["metadata"]["name"])
        for storage_class in classes or []
        if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    }
    for name, claim in claims.items():
        subject = f"claim {name}"
        if claim is None:
            yield Finding(
                subject, "problem", "it does not exist", "create it, or correct the volume"
            )
            continue
        phase = claim.get("status", {}).get("phase")
        modes = set(claim["spec"].get("accessModes") or ())
        if phase != "Bound" and claim["spec"].get("storageClassName") not in waiting:
            yield Finding(
                subject,
                "problem",
                f"it is {phase}: no volume is bound to it",
                f"see kubectl describe persistentvolumeclaim {name}",
            )
        elif workers > 1 and not modes & _MANY_NODES:
            allowed = join_names(sorted(modes))
            yield Finding(
                subject,
                "problem",
                f"{workers} workers mount it, and it allows {allowed}",
                "use a claim with ReadWriteMany, or ReadOnlyMany for data",
            )
        else:
            yield Finding(subject, "ok", f"{phase}, {join_names(sorted(modes))}")


def examine_classes(classes: Sequence[Object]) -> Finding:
    """List the storage classes for claims."""
    mark = ("storageclass.kubernetes.io/is-default-class", "true")
    notes = {
        str(storage_class["metadata"]["name"]): storage_class["metadata"].get("annotations") or {}
        for storage_class in classes
    }
    default = next(
        (name for name, annotations in notes.items() if mark in annotations.items()), None
    )
    names = list(notes)
    if default:
        return Finding("storage", "ok", f"{join_names(names)}; default: {default}")
    text = f"no default StorageClass among: {join_names(names) or 'none'}"
    return Finding("storage", "unknown", text, "name a class in each new claim")
