"""Whether a namespace has room for the pods of a run: quotas, limits, claims, GPUs. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from hvdchart.chart_files import app_version, is_gpu
from hvdchart.doctor.findings import Finding
from hvdchart.doctor.needs import PodNeeds, Values
from hvdchart.doctor.node_capacity import admits_pod
from hvdchart.doctor.pod_security import ENFORCE, LEVELS, PRIVILEGED, RESTRICTED, policy_version
from hvdchart.doctor.security_needs import security_needs
from hvdchart.quantity import amount_text, parse_quantity, pluralize
from hvdchart.run.state.release import Object, lacks_image
from hvdchart.run.state.status import Status
from hvdchart.run.state.status_text import removal_command
from hvdchart.spec.topology import import_memory
from hvdchart.text import join_names
from hvdchart.values.merge import merge_images, merged_groups

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


def examine_quotas(
    quotas: Iterable[Object], ranges: Sequence[Object], needs: Sequence[PodNeeds] | None
) -> Iterator[Finding]:
    """Check whether the pods fit the quotas, and set the fields that quotas and ranges require."""
    quotas = list(quotas)
    if needs is None or not (quotas or ranges):
        names = [str(limit["metadata"]["name"]) for limit in [*quotas, *ranges]]
        yield Finding("quotas", "ok", join_names(names) or "none")
        return
    problems: list[tuple[str, str]] = []
    for limit_range in ranges:
        problems += _out_of_range(limit_range, needs)
        problems += _below_need(limit_range, needs)
    admitted = [_add_defaults(pod, ranges) for pod in needs]
    for quota in quotas:
        problems += _over_quota(quota, admitted)
    if not problems:
        yield Finding("quotas", "ok", "the pods fit")
    yield from (Finding("quotas", "problem", problem, remedy) for problem, remedy in problems)


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


def examine_images(nodes: Sequence[Object], values: Values) -> Iterator[Finding]:
    """Check whether the nodes that admit a pod of the run have its image.

    The image may also be in a registry. A kubelet reports 50 images at most.
    """
    pods_by_image: dict[str, list[Values]] = {}
    for pod in (*merged_groups(values), values.get("master") or {}):
        image = merge_images(values.get("image"), pod.get("image"))
        pods_by_image.setdefault(_listed_name(image), []).append(pod)
    for reference, pods in pods_by_image.items():
        usable = [node for node in nodes if any(admits_pod(node, pod) for pod in pods)]
        yield _examine_image(usable, reference)


def _listed_name(image: Values) -> str:
    """Return the name under which a node lists an image: with its digest or its tag."""
    digest = image.get("digest")
    ending = f"@{digest}" if digest else f":{image.get('tag') or app_version()}"
    return f"{image.get('repository') or ''}{ending}"


def _examine_image(usable: Sequence[Object], reference: str) -> Finding:
    """Check whether the nodes that admit the pods of an image have it."""
    if not usable:
        text = f"no node that can be seen admits the run; it needs {reference}"
        return Finding("image", "unknown", text)
    missing = [node for node in usable if lacks_image(node, reference)]
    if not missing:
        return Finding("image", "ok", f"all nodes have {reference}")
    text = f"{len(missing)} of {len(usable)} nodes do not report {reference}"
    remedy = "its registry must have it, and admit the nodes"
    if "/" not in reference:
        remedy = "Docker Hub must have it; if not, push it to a registry and name that in "
        remedy += "`image.repository`, or load it into all nodes"
    return Finding("image", "unknown", text, remedy)


def examine_gpus(nodes: Sequence[Object], needs: Sequence[PodNeeds] | None) -> Iterator[Finding]:
    """Check whether enough nodes have the GPUs that a worker requests."""
    offered: dict[str, list[int]] = {}
    for node in nodes:
        for name, count in (node.get("status", {}).get("allocatable") or {}).items():
            if is_gpu(name) and int(parse_quantity(str(count))):
                offered.setdefault(name, []).append(int(parse_quantity(str(count))))
    wanted = [(pod, name, count) for pod in needs or [] for name, count in pod.gpus.items()]
    for pod, name, count in wanted:
        room = pod.number
        if count:
            room = sum(gpus // count for gpus in offered.get(name, []))
        text = (
            f"{pod.number} pods of {pod.name} need {count} {name} each; nodes have room for {room}"
        )
        if room >= pod.number:
            yield Finding("GPUs", "ok", text)
        else:
            remedy = "use fewer workers or GPUs, another resource, or install the device plugin"
            yield Finding("GPUs", "problem", text, remedy)
    if not wanted:
        counts = [f"{sum(gpus)} {name} on {len(gpus)} nodes" for name, gpus in offered.items()]
        yield Finding("GPUs", "ok", ", ".join(counts) or f"none on {len(nodes)} nodes")


def _over_quota(quota: Object, needs: Sequence[PodNeeds]) -> Iterator[tuple[str, str]]:
    """Yield the problems of the pods with one quota, each with its remedy."""
    name = quota["metadata"]["name"]
    if quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"):
        # The quota applies to some pods only.
        return
    used = quota.get("status", {}).get("used") or {}
    for resource, hard in (quota.get("status", {}).get("hard") or {}).items():
        of = resource.removeprefix("requests.").removeprefix("limits.")
        part = "limits" if resource.startswith("limits.") else "requests"
        if of == "pods":
            wanted = Fraction(sum(pod.number for pod in needs))
        else:
            lists = [(pod, getattr(pod, part)) for pod in needs]
            missing = [pod for pod, amounts in lists if of not in amounts]
            if of in ("cpu", "memory") and missing:
                names = join_names(pod.name for pod in missing)
                keys = join_names(dict.fromkeys(pod.key(f"{part}.{of}") for pod in missing))
                yield (
                    f"quota {name} requires {resource}, which {names} does not set",
                    f"set {keys}, or ask for a LimitRange with a default",
                )
            wanted = sum(
                (amounts.get(of, Fraction(0)) * pod.number for pod, amounts in lists), Fraction(0)
            )
        left = parse_quantity(str(hard)) - parse_quantity(str(used.get(resource, "0")))
        if wanted and wanted > left:
            yield (
                f"quota {name} leaves {_text(of, left)} {resource} of {_text(of, wanted)} needed",
                "use fewer or smaller workers, or ask for more",
            )


def _out_of_range(limit_range: Object, needs: Sequence[PodNeeds]) -> Iterator[tuple[str, str]]:
    """Yield the pods' problems with one LimitRange, and remedies; each pod has one container."""
    name = limit_range["metadata"]["name"]
    for limits in limit_range["spec"].get("limits") or []:
        if limits.get("type") not in ("Container", "Pod"):
            continue
        for pod in needs:
            for resource, most in (limits.get("max") or {}).items():
                wanted = max(pod.requests.get(resource, 0), pod.limits.get(resource, 0))
                if wanted > parse_quantity(str(most)):
                    yield (
                        f"limit range {name} allows {most} {resource}; {pod.name} has more",
                        f"lower {resource} in {pod.key()}, or ask for a higher maximum",
                    )
            for resource, least in (limits.get("min") or {}).items():
                wanted = pod.requests.get(resource, parse_quantity(str(least)))
                if wanted < parse_quantity(str(least)):
                    yield (
                        f"limit range {name} requires {least} {resource}; {pod.name} has less",
                        f"raise {resource} in {pod.key()}, or ask for a lower minimum",
                    )


def _below_need(limit_range: Object, needs: Sequence[PodNeeds]) -> Iterator[tuple[str, str]]:
    """Find default limits of a LimitRange that are below the pods' needs; add remedies."""
    name = limit_range["metadata"]["name"]
    for pod in needs:
        for resource, default in _defaults(limit_range, "default").items():
            if resource in pod.limits:
                continue
            wanted = pod.requests.get(resource, Fraction(0))
            reason = "its request"
            if resource == "memory" and pod.ranks and wanted < import_memory(pod.ranks):
                wanted = Fraction(import_memory(pod.ranks))
                reason = f"what {pluralize(pod.ranks, 'rank')} may take before training"
            if default < wanted:
                yield (
                    f"limit range {name} limits {resource} of {pod.name} to "
                    f"{_text(resource, default)}, which is less than {reason}: "
                    f"{_text(resource, wanted)}",
                    f"set {pod.key(f'limits.{resource}')}, or ask for a higher default",
                )


def _add_defaults(pod: PodNeeds, ranges: Sequence[Object]) -> PodNeeds:
    """Return the pod with the defaults that LimitRanges add when it is created."""
    limits = dict(pod.limits)
    requests = dict(pod.requests)
    for limit_range in ranges:
        default = _defaults(limit_range, "default")
        limits = {**default, **limits}
        requests = {**default, **_defaults(limit_range, "defaultRequest"), **requests}
    return dataclasses.replace(pod, limits=limits, requests=requests)


def _defaults(limit_range: Object, key: str) -> dict[str, Fraction]:
    """Return the default limits (`default`) or requests (`defaultRequest`) of containers."""
    amounts: dict[str, Fraction] = {}
    for limits in limit_range["spec"].get("limits") or []:
        if limits.get("type") == "Container":
            entry = limits.get(key) or {}
            amounts |= {name: parse_quantity(str(amount)) for name, amount in entry.items()}
    return amounts


def _text(resource: str, amount: Fraction) -> str:
    """Format an amount as a quantity; CPUs are whole ones here."""
    if resource == "cpu":
        return amount_text(resource, int(amount * 1000))
    return amount_text(resource, int(amount))
