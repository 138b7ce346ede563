"""Whether the ResourceQuotas and LimitRanges of a namespace admit the pods of a run. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from hvdchart.doctor.findings import Finding
from hvdchart.doctor.needs import PodNeeds
from hvdchart.quantity import amount_text, parse_quantity, pluralize
from hvdchart.run.state.release import Object
from hvdchart.spec.topology import import_memory
from hvdchart.text import join_names


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
