"""The Python stacks of a run's ranks, as hvd_pods/worker/stacks.py shows them in their workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from hvdchart.errors import ClusterError
from hvdchart.run.kubectl import Kubectl
from hvdchart.run.output import running_pod
from hvdchart.run.release import Object, Release, component_of

_PROGRAM = ("python3", "-I", "-S", "/horovod/bin/hvd_pods/worker/stacks.py")
_AT_ONCE = 16


def read_stacks(release: Release, target: str | None, kubectl: Kubectl) -> Iterator[str]:
    """The stacks of one rank, of a worker's ranks, or of all ranks: a text for each pod.

    Raises ClusterError when there is no such rank or worker, or it cannot be asked.
    """
    if target is not None:
        pod = running_pod(release, target)
        yield _ask(pod, [target] if target.isdecimal() else [], kubectl)
        return
    running = [pod for pod in release.pods if pod["status"].get("phase") == "Running"]
    workers = [pod for pod in running if component_of(pod) == "worker"]
    if not workers:
        raise ClusterError(f"no worker of run {release.name} runs")

    def ask(pod: Object) -> str:
        try:
            return _ask(pod, [], kubectl)
        except ClusterError as problem:
            # The pod has ended since it was listed; the others may still answer.
            return f"{problem}\n"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(ask, workers)


def _ask(pod: Object, ranks: list[str], kubectl: Kubectl) -> str:
    name, container = str(pod["metadata"]["name"]), component_of(pod)
    if container != "worker":
        raise ClusterError(f"{name} has no ranks: name a rank, or a worker such as worker-0")
    text = kubectl.read(name, container, [*_PROGRAM, *ranks]).decode(errors="replace")
    return f"{name}:\n{text or 'no rank runs' + chr(10)}"
