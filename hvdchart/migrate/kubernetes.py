"""Checks the parts of pods as the API server does: unknown keys, types, names, enumerations. Pure.

kubernetes.json has the API's own definitions; `make schemas` writes it.
"""

from __future__ import annotations

import copy
import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from hvdchart.chart_files import is_gpu
from hvdchart.quantity import parse_quantity
from hvdchart.spec.paths import KeyPath, value_at
from hvdchart.spec.yaml_tree import Plain, shorten
from hvdchart.values.schema import schema_at

_LABEL = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_NAME = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
         "maxLength": 253}  # fmt: skip
_TEXT = {"minLength": 1}
_KEY = {
    "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
}
_VALUE = {"pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", "maxLength": 63}
_ID = {"minimum": 0, "maximum": 2**31 - 1}
_OPERATORS = {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]}
_EFFECTS = {"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]}
_PATH = {"minLength": 1, "pattern": "^(?!(.*/)?[.][.](/|$))[^:]*$"}
# No volume has more than one source beside its name.
_ONE_SOURCE = {"maxProperties": 2}
_EXISTS_HAS_NO_VALUE = {
    "if": {"properties": {"operator": {"const": "Exists"}}, "required": ["operator"]},
    "then": {"properties": {"value": {"maxLength": 0}}},
    "else": {"properties": {"key": _TEXT}, "required": ["key"]},
}
# What the API server demands beyond its OpenAPI description: by type, or by type and key.
_LIMITS: Mapping[str, Mapping[str, Any]] = {
    "Quantity": {
        "minimum": 0,
        "pattern": "^([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
    },
    "Volume": _ONE_SOURCE, "Volume.name": _LABEL, "Toleration": _EXISTS_HAS_NO_VALUE,
    "VolumeMount.name": _LABEL, "VolumeMount.mountPath": _PATH,
    "VolumeMount.subPath": {"pattern": "^(?!/)(?!(.*/)?[.][.](/|$))"},
    "EnvVar.name": {"minLength": 1, "pattern": "^[ -<>-~]+$"},
    "EnvVar": {"not": {"required": ["value", "valueFrom"]}},
    "EnvVarSource": {"minProperties": 1, "maxProperties": 1},
    "SecretKeySelector.name": _NAME, "ConfigMapKeySelector.name": _NAME,
    "SecretKeySelector.key": _TEXT, "ConfigMapKeySelector.key": _TEXT,
    "LocalObjectReference.name": _NAME, "PersistentVolumeClaimVolumeSource.claimName": _NAME,
    "NFSVolumeSource.server": _TEXT, "NFSVolumeSource.path": {"pattern": "^/"},
    "HostPathVolumeSource.path": _PATH, "HostPathVolumeSource.type": {"enum": [
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice",
        "BlockDevice"]},
    "EmptyDirVolumeSource.medium": {"pattern": "^(|Memory|HugePages(-.+)?)$"},
    "SecretVolumeSource.secretName": _NAME, "ConfigMapVolumeSource.name": _NAME,
    "CSIVolumeSource.driver": _TEXT,
    "Toleration.operator": {"enum": ["", "Exists", "Equal"]}, "Toleration.effect": _EFFECTS,
    "Toleration.key": {"anyOf": [_KEY, {"maxLength": 0}]}, "Toleration.value": _VALUE,
    "TopologySpreadConstraint.maxSkew": {"minimum": 1},
    "TopologySpreadConstraint.topologyKey": _KEY,
    "TopologySpreadConstraint.whenUnsatisfiable": {"enum": ["DoNotSchedule", "ScheduleAnyway"]},
    "NodeSelectorRequirement.operator": _OPERATORS, "NodeSelectorRequirement.key": _KEY,
    "NodeSelector.nodeSelectorTerms": {"minItems": 1},
    "LabelSelectorRequirement.operator": {"enum": _OPERATORS["enum"][:4]},
    "LabelSelectorRequirement.key": _KEY,
    "PodAffinityTerm.topologyKey": _KEY,
    "WeightedPodAffinityTerm.weight": {"minimum": 1, "maximum": 100},
    "PreferredSchedulingTerm.weight": {"minimum": 1, "maximum": 100},
    "PodSecurityContext.runAsUser": _ID, "PodSecurityContext.runAsGroup": _ID,
    "PodSecurityContext.fsGroup": _ID, "SecurityContext.runAsUser": _ID,
    "SecurityContext.runAsGroup": _ID,
    "PodSecurityContext.fsGroupChangePolicy": {"enum": ["OnRootMismatch", "Always"]},
    "PodSecurityContext.supplementalGroups": {"items": {"type": "integer", **_ID}},
    "SeccompProfile.type": {"enum": ["RuntimeDefault", "Unconfined", "Localhost"]},
    "SecurityContext.procMount": {"enum": ["Default", "Unmasked"]},
}  # fmt: skip
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
# Types that the API does not name.
_OWN_TYPES: Mapping[str, Any] = {
    "Labels": {**_STRINGS, "propertyNames": _KEY, "additionalProperties": {**_VALUE,
                                                                       "type": "string"}},
    "Annotations": {**_STRINGS, "propertyNames": _KEY},
    "Name": {"type": "string", **_NAME},
    "Repository": {"type": "string", "pattern":
                   "^[A-Za-z0-9][-A-Za-z0-9._]*(:[0-9]+)?(/[a-z0-9._-]+)*$"},
    "Tag": {"type": "string", "pattern": "^[A-Za-z0-9_][-A-Za-z0-9._]{0,127}$"},
    **{f"{name}List": {"type": "array", "items": {"$ref": f"#/definitions/{name}"}} for name in (
        "Volume", "VolumeMount", "EnvVar", "Toleration", "TopologySpreadConstraint",
        "LocalObjectReference", "EnvFromSource", "Container", "HostAlias")},
}  # fmt: skip
# The types of the chart's values.
_POD_KEYS = {
    "env": "EnvVarList", "resources": "ResourceRequirements", "nodeSelector": "Labels",
    "affinity": "Affinity", "tolerations": "TolerationList", "podLabels": "Labels",
    "podAnnotations": "Annotations", "topologySpreadConstraints": "TopologySpreadConstraintList",
    "runtimeClassName": "Name", "envFrom": "EnvFromSourceList", "initContainers": "ContainerList",
    "extraContainers": "ContainerList",
}  # fmt: skip
_IMAGE_KEYS = {"repository": "Repository", "tag": "Tag"}
_TYPES: Mapping[tuple[str, ...], str] = {
    **{(pod, key): kind for pod in ("worker", "master") for key, kind in _POD_KEYS.items()},
    **{(*path, key): kind for path in (("image",), ("master", "image"), ("worker", "image"))
       for key, kind in _IMAGE_KEYS.items()},
    ("dnsConfig",): "PodDNSConfig", ("hostAliases",): "HostAliasList",
    ("volumes",): "VolumeList", ("volumeMounts",): "VolumeMountList",
    ("imagePullSecrets",): "LocalObjectReferenceList",
    ("podSecurityContext",): "PodSecurityContext", ("securityContext",): "SecurityContext",
    ("priorityClassName",): "Name", ("schedulerName",): "Name", ("queueName",): "Name",
    ("shm", "sizeLimit"): "Quantity",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Why a value is refused: the path below the value, what is wrong, what is expected."""

    path: KeyPath
    problem: str
    expected: str


def value_problem(new: Sequence[str], value: Plain) -> Problem | None:
    """Why the API server would refuse `value` at the path `new` of the chart's values."""
    kind = _TYPES.get(tuple(new))
    if kind is None and len(new) > 1 and (parent := _TYPES.get(tuple(new[:-1]))):
        # A single key of an object.
        refusal = find_problem(parent, {new[-1]: value})
        return refusal and Problem(refusal.path[1:], refusal.problem, refusal.expected)
    return find_problem(kind, value) if kind else None


def find_problem(kind: str, value: Plain) -> Problem | None:
    """Why the API server would refuse a value of a type; None when it accepts it."""
    error = next(iter(_validator(kind).iter_errors(value)), None)
    if error is None:
        return _resources_problem(value) if kind == "ResourceRequirements" else None
    path = tuple(error.instance_path)
    unknown = getattr(error.kind, "unexpected", None)
    if unknown:
        allowed = list((schema_at(_schema(kind), path) or {}).get("properties", {}))
        missing = [key for key in allowed if key not in (value_at(value, path) or {})]
        expected = did_you_mean(unknown[0], missing)
        return Problem((*path, unknown[0]), "Kubernetes has no such key", expected)
    problem = f"Kubernetes does not accept it: {shorten(str(error.message), 160)}"
    return Problem(path, problem, "what the Kubernetes API accepts there")


def did_you_mean(name: str, allowed: Sequence[str]) -> str:
    """What is expected instead of an unknown key: the one like it, or those that there are."""
    close = difflib.get_close_matches(name, allowed, 1, 0.7)
    if close:
        return f"{close[0]}, if that is meant"
    return f"one of {', '.join(sorted(allowed))}" if len(allowed) < 9 else "a key of Kubernetes"


def _resources_problem(value: Plain) -> Problem | None:
    limits, requests = (value.get(key) or {} for key in ("limits", "requests"))
    for name, amount in requests.items():
        requested, limit = _amount(amount), _amount(limits.get(name, amount))
        if requested > limit:
            return Problem(("requests", name), f"the request {amount} is above the limit "
                           f"{limits[name]}", "a request of at most the limit")  # fmt: skip
        if is_gpu(name) and (name not in limits or requested != limit):
            return Problem(("requests", name), f"the limit is {limits.get(name, 'missing')}",
                           "a limit that equals the request, as for all devices")  # fmt: skip
    return None


def _amount(value: Plain) -> Fraction:
    return parse_quantity(str(value))


def _schema(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{kind}", "definitions": _definitions()}


@functools.cache
def _definitions() -> dict[str, Any]:
    text = (Path(__file__).parent / "kubernetes.json").read_text("utf-8")
    definitions: dict[str, Any] = {**json.loads(text), **copy.deepcopy(dict(_OWN_TYPES))}
    for place, limits in _LIMITS.items():
        kind, _, key = place.partition(".")
        node = definitions[kind]["properties"][key] if key else definitions[kind]
        node.update(limits)
    return definitions


@functools.cache
def _validator(kind: str) -> Any:
    from jsonschema_rs import Draft7Validator

    return Draft7Validator(_schema(kind))
