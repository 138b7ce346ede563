"""The Python stacks of a run's ranks, as hvd_pods/worker/stacks.py shows them in their workers."""

from __future__ import annotations

from collections.abc import Iterator

from hvdchart.errors import ClusterError
from hvdchart.run.kube.kubectl import Kubectl
from hvdchart.run.state.output_pods import running_pod
from hvdchart.run.state.release import component_of
from hvdchart.run.state.view import RunView

_PROGRAM = ("python3", "-I", "-S", "/horovod/bin/hvd_pods/worker/stacks.py")


def read_stacks(run: RunView, target: str | None, kubectl: Kubectl) -> Iterator[str]:
    """Yield the stacks of one rank, of a worker's ranks or of all: a text for each pod.

    `target` names a rank or a pod; None: all workers. Pods that do not answer are listed at the
    end. Raises ClusterError when no pod answers, or `target` is no rank and no worker.
    """
    if target is not None:
        pods = [running_pod(run, target)]
        if component_of(pods[0]) != "worker":
            name = pods[0]["metadata"]["name"]
            raise ClusterError(f"{name} has no ranks: name a rank, or a worker such as worker-0")
    else:
        running = [pod for pod in run.pods if pod["status"].get("phase") == "Running"]
        pods = [pod for pod in running if component_of(pod) == "worker"]
    if not pods:
        raise ClusterError(f"no worker of run {run.release.name} runs")
    ranks = [target] if target and target.isdecimal() else []
    answers = kubectl.read_each(pods, [*_PROGRAM, *ranks])
    for name, text in answers:
        if isinstance(text, str):
            stacks = text or "no rank runs\n"
            yield f"{name}:\n{stacks}"
    for _, problem in answers:
        if isinstance(problem, ClusterError):
            yield f"{problem}\n"
