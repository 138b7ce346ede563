"""Finds the pod of a rank, and a pod that mounts the run's output. Pure."""

from __future__ import annotations

import re

from hvdchart.errors import ClusterError
from hvdchart.run.ranks import pod_of, run_of
from hvdchart.run.release import Object, Release, component_of
from hvdchart.run.status import belongs_to_other_job, newest_job, run_status

_REFERENCE = re.compile(r"\$\(([^)]+)\)")
_TIMELINE = "HOROVOD_TIMELINE"


def running_pod(release: Release, target: str) -> Object:
    """The pod of a rank, a worker or the master; raises ClusterError while it does not run."""
    job = newest_job(release)
    if job is None:
        raise ClusterError(f"run {release.name} is over, and its pods are gone")
    is_of_job = release.record.get("job") == job["metadata"]["name"]
    wanted = pod_of(run_of(job), target, release.record if is_of_job else {})
    for pod in release.pods:
        name = str(pod["metadata"]["name"])
        is_wanted = component_of(pod) == "master" if wanted == "master" else name == wanted
        is_wanted = is_wanted and not belongs_to_other_job(pod, job)
        if is_wanted and pod["status"].get("phase") == "Running":
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
    path = next(filter(None, map(_timeline_path, release.stateful_sets)), None)
    if path is None:
        raise ClusterError(
            f"run {release.name} writes no timeline: deploy it with --set horovod.timeline=true"
        )
    job = newest_job(release)
    first = pod_of(run_of(job), "0", release.record) if job else ""
    names = [
        (str(pod["metadata"]["name"]), component_of(pod))
        for pod in release.pods
        if pod["status"].get("phase") == "Running"
    ]
    found = [each for each in names if each[0] == first or each[1] == "tensorboard"]
    if found:
        return path, sorted(found, key=lambda each: each[0] != first)
    raise ClusterError(
        f"no running pod of run {release.name} has {path}: read it from the volume, or set "
        "tensorboard.enabled, whose pod stays after the run"
    )


def _timeline_path(stateful_set: Object) -> str | None:
    pod = stateful_set["spec"].get("template", {}).get("spec", {})
    for container in pod.get("containers") or []:
        values = {
            str(entry["name"]): str(entry.get("value", "")) for entry in container.get("env") or []
        }
        if values.get(_TIMELINE):
            # Kubernetes replaces references such as $(OUTPUT_PATH).
            parts = _REFERENCE.split(values[_TIMELINE])
            parts[1::2] = [values.get(name, f"$({name})") for name in parts[1::2]]
            return "".join(parts)
    return None
