"""Find the pod of a rank, and pods that mount the run's output. Pure."""

from __future__ import annotations

import re

from hvdchart.errors import ClusterError
from hvdchart.run.state.ranks import pod_of, run_of
from hvdchart.run.state.release import Object, component_of
from hvdchart.run.state.view import RunView

_VARIABLE_REFERENCE = re.compile(r"\$\(([^)]+)\)")
_TIMELINE = "HOROVOD_TIMELINE"


def running_pod(run: RunView, target: str) -> Object:
    """Return the pod of a rank, a worker or the master; `target` names it as in `pod_of`.

    Raises ClusterError while the pod does not run, and for an unknown rank or worker.
    """
    if run.job is None:
        raise ClusterError(f"run {run.release.name} is over, and its pods are gone")
    wanted = pod_of(run_of(run.job), target, run.record)
    for pod in run.pods:
        # The name of the master's pod ends with random characters.
        name = component_of(pod) if wanted == "master" else pod["metadata"]["name"]
        if name == wanted and pod["status"].get("phase") == "Running":
            return pod
    current = run.status
    reason = f": {current.reason}" if current.reason else ""
    raise ClusterError(
        f"{wanted} of run {current.name} does not run; the run is {current.state}{reason}"
    )


def timeline_sources(run: RunView) -> tuple[str, list[tuple[str, str]]]:
    """Return the timeline's path, and the running pods that may have it, each with its container.

    Rank 0 writes it. TensorBoard stays after the run, and may mount the same volume. Raises
    ClusterError when the run writes none, or none of these pods runs.
    """
    release = run.release
    paths = [path for path in map(_timeline_path, release.stateful_sets) if path]
    if not paths:
        raise ClusterError(
            f"run {release.name} writes no timeline: deploy it with `--set horovod.timeline=true`"
        )
    path = paths[0]
    first = pod_of(run_of(run.job), "0", run.record) if run.job else ""
    sources = []
    for pod in release.pods:
        name = str(pod["metadata"]["name"])
        component = component_of(pod)
        is_running = pod["status"].get("phase") == "Running"
        if is_running and (name == first or component == "tensorboard"):
            sources.append((name, component))
    if sources:
        # Rank 0's own pod comes first.
        return path, sorted(sources, key=lambda source: source[0] != first)
    raise ClusterError(
        f"no running pod of run {release.name} has {path}: read it from the volume, or set "
        "`tensorboard.enabled`, whose pod stays after the run"
    )


def _timeline_path(stateful_set: Object) -> str | None:
    """Return the path where the ranks of a StatefulSet write their timeline; None without one."""
    pod = stateful_set["spec"].get("template", {}).get("spec", {})
    for container in pod.get("containers") or []:
        values = {
            str(entry["name"]): str(entry.get("value", "")) for entry in container.get("env") or []
        }
        if values.get(_TIMELINE):
            # Kubernetes replaces references such as $(OUTPUT_PATH).
            parts = _VARIABLE_REFERENCE.split(values[_TIMELINE])
            # Every second part is the name of a variable; a reference to an unknown variable stays.
            parts[1::2] = [values.get(name, f"$({name})") for name in parts[1::2]]
            return "".join(parts)
    return None
