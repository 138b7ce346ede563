"""The result of a scaling measurement as data: written, read and described. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvdchart.bench.scaling import Measurement, rows
from hvdchart.errors import FileError
from hvdchart.quantity import pluralize
from hvdchart.run.release import Object
from hvdchart.spec.paths import dotted
from hvdchart.spec.yaml_tree import shorten
from hvdchart.text import join_names

_TEXT, _WHOLE, _SHARE = {"type": "string"}, {"type": "integer", "minimum": 1}, {"type": "number"}
_ROW = {
    "workers": _WHOLE, "ranks": _WHOLE,
    "imagesPerSecond": {"type": "number", "exclusiveMinimum": 0},
    "interval": _SHARE, "efficiency": _SHARE, "efficiencyInterval": _SHARE,
}  # fmt: skip
_KEYS = {
    "session": _TEXT, "name": _TEXT, "time": _TEXT, "image": _TEXT, "turns": _WHOLE,
    "command": {"type": "array", "items": _TEXT},
    "machines": {
        "type": "array",
        "items": {"type": "object", "properties": {"gpus": {"type": "array", "items": _TEXT}}},
    },
    "nodes": {"type": "object", "additionalProperties": _TEXT},
    "rows": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "properties": _ROW, "required": list(_ROW)},
    },
}  # fmt: skip
_SCHEMA = {"type": "object", "properties": _KEYS, "required": list(_KEYS)}


def document(
    measured: Sequence[Measurement], machines: Sequence[Object], about: Mapping[str, Any]
) -> Object:
    """The result as JSON data; `about` is added as it is."""
    pods = measured[0].pods
    return {
        **about,
        # Pods are unique: two results are of one session if they ran in the same.
        "session": pods[0].uid if pods else "",
        "machines": list(machines),
        "image": pods[0].image if pods else "",
        "nodes": {pod.name: pod.node for pod in pods},
        "rows": rows(measured),
    }


def read_document(file: Path) -> Object:
    """A result that was written before; raises FileError."""
    from jsonschema_rs import Draft7Validator

    try:
        result: Object = json.loads(file.read_text("utf-8"))
        wrong = next(Draft7Validator(_SCHEMA).iter_errors(result), None)
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{file}: cannot read the result: {error}") from error
    if wrong is not None:
        place = dotted(tuple(wrong.instance_path))
        where = f"{place}: " if place else ""
        problem = where + shorten(wrong.message, 160)
        raise FileError(f"{file}: is not a result of `hvdchart bench -w`: {problem}")
    return result


def machine_text(result: Object) -> str:
    """What was measured on: processors or GPUs, how many hosts and nodes."""
    kinds: Counter[str] = Counter()
    for machine in result["machines"]:
        gpus = machine.get("gpus") or []
        name = f"{len(gpus)} x {gpus[0]}" if gpus else str(machine.get("processor", "?"))
        kinds[f"{name}, {machine.get('cpus', '?')} CPUs"] += 1
    text = "; ".join(f"{number} x ({kind})" for kind, number in kinds.items()) or "unknown machines"
    nodes = len(set((result.get("nodes") or {}).values()))
    return f"{text} on {pluralize(nodes, 'node')}" if nodes else text


def remarks(result: Object) -> list[str]:
    """What a reader of the figures must know."""
    nodes = result.get("nodes") or {}
    shared = sorted({node for node in nodes.values() if list(nodes.values()).count(node) > 1})
    if not shared:
        return []
    return [
        f"several workers were on one node ({join_names(shared)}): the figures include no "
        "network, and ranks that share cores or memory slow each other"
    ]
