"""The command `exec`, and what it shares with `debug`."""

from typing import TYPE_CHECKING

import typer

from hvdchart.cli.options import Context, Name, Namespace, Target, Words, connect

if TYPE_CHECKING:
    from hvdchart.run.kube.cluster import Cluster
    from hvdchart.run.state.view import RunView


def exec_(
    name: Name,
    target: Target,
    command: Words = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Run a command, or a shell, in the pod of a rank, a worker or the master.

    Examples:
      hvdchart exec resnet50 3
      hvdchart exec resnet50 worker-0 -- nvidia-smi

    Exit codes: that of the command; 7 there is no such pod, or the cluster cannot be used.
    """
    from hvdchart.run.kube.runs import present_run

    cluster = connect(context, namespace)
    run_in_pod(cluster, present_run(cluster, name), target, command, context)


def run_in_pod(
    cluster: "Cluster",
    run: "RunView",
    target: str,
    command: list[str] | None,
    context: str | None,
) -> None:
    """Run a command in the pod that the user names, and exit with its code.

    `target` is a rank's number, worker-N, master or a pod's name; without a command, a shell runs.
    Raises ClusterError while the pod does not run.
    """
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.run.state.output_pods import running_pod
    from hvdchart.run.state.release import component_of

    pod = running_pod(run, target)
    kubectl = Kubectl(cluster.namespace, context)
    code = kubectl.run_in(pod["metadata"]["name"], component_of(pod), command or ())
    raise typer.Exit(code)
