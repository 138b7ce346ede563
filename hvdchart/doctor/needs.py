"""The needs of a run's pods in a namespace: resources, claims, named objects. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from hvdchart.chart_files import is_gpu
from hvdchart.quantity import parse_quantity
from hvdchart.values.merge import merged_groups

Values: TypeAlias = Mapping[str, Any]
CLAIM = "PersistentVolumeClaim"
# The fields of Kubernetes that refer to another object: its kind, and the field with its name.
_NAMED_BY = {
    "secretKeyRef": ("Secret", "name"),
    "secretRef": ("Secret", "name"),
    "secret": ("Secret", "secretName"),
    "configMapKeyRef": ("ConfigMap", "name"),
    "configMapRef": ("ConfigMap", "name"),
    "configMap": ("ConfigMap", "name"),
    "persistentVolumeClaim": (CLAIM, "claimName"),
}


@dataclass(frozen=True)
class PodNeeds:
    """Some equal pods, each with one container; `ranks` is the number of ranks in each pod."""

    name: str
    number: int
    requests: Mapping[str, Fraction]
    limits: Mapping[str, Fraction]
    ranks: int = 0

    def key(self, part: str = "") -> str:
        """Return the key of a spec that sets the pods' resources, or a part of them."""
        component = "master" if self.name == "master" else "worker"
        return f"`values.{component}.resources{f'.{part}' if part else ''}`"

    @property
    def gpus(self) -> Mapping[str, int]:
        """Return the GPUs of a pod by resource."""
        return {name: int(count) for name, count in self.limits.items() if is_gpu(name)}


def pod_needs(values: Values) -> list[PodNeeds]:
    """Return the pods of a run by its complete values: each group of workers, and the master."""
    pods = []
    for group in merged_groups(values):
        number = int(group["number"]) + int(group.get("spares") or 0)
        pod = _needs(str(group["name"]), number, group)
        pods.append(dataclasses.replace(pod, ranks=int(group["slots"])))
    return [*pods, _needs("master", 1, values.get("master") or {})]


def find_claims(values: Values) -> dict[str, bool]:
    """Return the PersistentVolumeClaims that pods mount, and whether any pod writes to each."""
    is_written: dict[str, bool] = {}
    for volume in _volumes(values):
        claim = volume.get("persistentVolumeClaim")
        if claim:
            name = str(claim["claimName"])
            is_written[name] = is_written.get(name, False) or not claim.get("readOnly")
    return is_written


def objects_named(values: Values) -> list[tuple[str, str]]:
    """Return the kind and the name of each Secret, ConfigMap and claim that a pod needs to start.

    The release creates those of `extraObjects`, and optional ones may be missing.
    """
    charts_objects = {
        (extra_object.get("kind"), (extra_object.get("metadata") or {}).get("name"))
        for extra_object in values.get("extraObjects") or []
        if isinstance(extra_object, Mapping)
    }
    pods = {key: value for key, value in values.items() if key != "extraObjects"}
    references = dict.fromkeys(_references(pods))
    return [(kind, name) for kind, name in references if (kind, name) not in charts_objects]


def _references(node: Any) -> Iterator[tuple[str, str]]:
    """Find the references of environment variables and volumes below a node of the values."""
    if isinstance(node, list):
        for child in node:
            yield from _references(child)
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        kind, name_key = _NAMED_BY.get(key, ("", ""))
        is_reference = kind and isinstance(value, Mapping) and isinstance(value.get(name_key), str)
        if is_reference and value[name_key] and not value.get("optional"):
            yield kind, value[name_key]
        yield from _references(value)


def _volumes(values: Values) -> Iterator[Mapping[str, Any]]:
    """Yield the volumes of each group, which has those of all workers, too."""
    for group in merged_groups(values):
        yield from group["volumes"] or []


def _needs(name: str, number: int, of: Values) -> PodNeeds:
    resources = of.get("resources") or {}
    limits = _quantities(resources.get("limits"))
    # Kubernetes uses the limit if the request is missing.
    requests = {**limits, **_quantities(resources.get("requests"))}
    return PodNeeds(name, number, requests, limits)


def _quantities(resources: Mapping[str, Any] | None) -> dict[str, Fraction]:
    return {name: parse_quantity(str(value)) for name, value in (resources or {}).items()}
