"""The loss when a run's workers end: its steps, if no volume outlives them. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from hvdchart.run.state.release import Object
from hvdchart.run.state.view import RunView

_OUTPUT_PATH = "OUTPUT_PATH"
# Volumes that end with their pod.
_OF_POD = ("emptyDir", "ephemeral")


def find_loss(run: RunView) -> str:
    """Return what an active run loses when its workers end; empty if a volume may keep it.

    Only known facts count: the step that the script reported, and the workers' path and volume for
    checkpoints.
    """
    if not run.status.is_active or not run.workers.ready or run.progress is None:
        return ""
    reasons = [_find_reason(stateful_set) for stateful_set in run.release.stateful_sets]
    if not reasons or not all(reasons):
        return ""
    at = f"run {run.release.name} is at step {run.progress.step}"
    return f"{at}, which no volume has: {reasons[0]}"


def _find_reason(stateful_set: Object) -> str:
    """Explain why no file of a StatefulSet's ranks outlives them; empty if one may."""
    pod: dict[str, Any] = stateful_set["spec"].get("template", {}).get("spec", {})
    workers = [entry for entry in pod.get("containers") or [] if entry.get("name") == "worker"]
    if not workers or workers[0].get("envFrom"):
        # Variables from a ConfigMap or a Secret are unknown here.
        return ""
    values = {entry["name"]: entry.get("value") for entry in workers[0].get("env") or []}
    if _OUTPUT_PATH not in values:
        return f"{_OUTPUT_PATH} is not set"
    path = values[_OUTPUT_PATH]
    if not path or "$(" in path:
        return ""
    mounts = {
        PurePosixPath(mount["mountPath"]): mount["name"]
        for mount in workers[0].get("volumeMounts") or []
    }
    places = [PurePosixPath(path), *PurePosixPath(path).parents]
    name = next((mounts[place] for place in places if place in mounts), None)
    if name is None:
        return f"{_OUTPUT_PATH}={path} is on no volume"
    volumes: list[Object] = pod.get("volumes") or []
    volume = next((entry for entry in volumes if entry["name"] == name), {})
    kind = next((kind for kind in _OF_POD if kind in volume), None)
    return f"{_OUTPUT_PATH}={path} is on the {kind} {name}, which ends with its pod" if kind else ""
