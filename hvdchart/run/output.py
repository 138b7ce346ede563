"""Finds the pod of a rank, and pods that mount the run's output. Pure."""

from __future__ import annotations

import re

from hvdchart.errors import ClusterError
from hvdchart.run.ranks import pod_of, run_of
from hvdchart.run.release import Object, Release, component_of
from hvdchart.run.status import belongs_to_other_job, newest_job, run_record, run_status

_REFERENCE = re.compile(r"\$\(([^)]+)\)")
_TIMELINE = "HOROVOD_TIMELINE"


def running_pod(release: Release, target: str) -> Object:
    """The pod of a rank, a worker or the master, which `target` names as in `pod_of`.

    Raises ClusterError while the pod does not run, and for a rank or worker that the run has not.
    """
    job = newest_job(release)
    if job is None:
        raise ClusterError(f"run {release.name} is over, and its pods are gone")
    # The record of an earlier run may name other workers.
    wanted = pod_of(run_of(job), target, run_record(release))
    for pod in release.pods:
        if belongs_to_other_job(pod, job) or pod["status"].get("phase") != "Running":
            continue
        # The name of the master's pod ends with random characters.
        name = component_of(pod) if wanted == "master" else pod["metadata"]["name"]
        if name == wanted:
            return pod
    current = run_status(release)
    reason = f": {current.reason}" if current.reason else ""
    raise ClusterError(
        f"{wanted} of run {release.name} does not run; the run is {current.state}{reason}"
    )


def code_source(release: Release) -> str:
    """The ConfigMap with the code that the newest run mounts; raises ClusterError without one."""
    job = newest_job(release)
    if job is None:
        raise ClusterError(
            f"the Job of run {release.name}, which names its code, was deleted; `helm get values "
            f"{release.name}` prints the value `code` as it was deployed"
        )
    # A run without code may have a volume of the user's that is called `code`.
    prefix = f"{str(job['metadata']['name']).rpartition('-master-')[0]}-code-"
    for volume in job["spec"]["template"]["spec"].get("volumes") or []:
        name = str((volume.get("configMap") or {}).get("name", ""))
        if volume.get("name") == "code" and name.startswith(prefix):
            return name
    raise ClusterError(f"run {release.name} has no code of its own: its image has it")


def timeline_sources(release: Release) -> tuple[str, list[tuple[str, str]]]:
    """The timeline's path, and the running pods that may have it, each with its container.

    Rank 0 writes it, and TensorBoard, which stays after the run, may have the same volume. Raises
    ClusterError when the run writes none, or none of these pods runs.
    """
    paths = [path for path in map(_timeline_path, release.stateful_sets) if path]
    if not paths:
        raise ClusterError(
            f"run {release.name} writes no timeline: deploy it with --set horovod.timeline=true"
        )
    path = paths[0]
    job = newest_job(release)
    first = pod_of(run_of(job), "0", release.record) if job else ""
    sources = []
    for pod in release.pods:
        name = str(pod["metadata"]["name"])
        component = component_of(pod)
        is_running = pod["status"].get("phase") == "Running"
        if is_running and (name == first or component == "tensorboard"):
            sources.append((name, component))
    if sources:
        # Rank 0's own pod first.
        return path, sorted(sources, key=lambda source: source[0] != first)
    raise ClusterError(
        f"no running pod of run {release.name} has {path}: read it from the volume, or set "
        "tensorboard.enabled, whose pod stays after the run"
    )


def has_empty_tensorboard(release: Release) -> bool:
    """Whether TensorBoard reads a volume of its own pod, on which no rank writes."""
    for pod in release.pods:
        if component_of(pod) != "tensorboard":
            continue
        own = {each["name"] for each in pod["spec"].get("volumes") or [] if "emptyDir" in each}
        for container in pod["spec"].get("containers") or []:
            for mount in container.get("volumeMounts") or []:
                if mount["name"] in own and mount.get("readOnly"):
                    return True
    return False


def _timeline_path(stateful_set: Object) -> str | None:
    """Where the ranks of a StatefulSet write their timeline; None when they write none."""
    pod = stateful_set["spec"].get("template", {}).get("spec", {})
    for container in pod.get("containers") or []:
        values = {
            str(entry["name"]): str(entry.get("value", "")) for entry in container.get("env") or []
        }
        if values.get(_TIMELINE):
            # Kubernetes replaces references such as $(OUTPUT_PATH).
            parts = _REFERENCE.split(values[_TIMELINE])
            # Each second part is the name of a variable; a reference to an unknown one stays.
            parts[1::2] = [values.get(name, f"$({name})") for name in parts[1::2]]
            return "".join(parts)
    return None
