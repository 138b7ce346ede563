"""The command `exec`."""

import typer

from hvdchart.cli.options import Context, Name, Namespace, Target, Words, connect_to_cluster


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
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.run.kube.runs import present_run
    from hvdchart.run.state.output_pods import running_pod
    from hvdchart.run.state.release import component_of

    cluster = connect_to_cluster(context, namespace)
    pod = running_pod(present_run(cluster, name), target)
    kubectl = Kubectl(cluster.namespace, context)
    code = kubectl.run_in(pod["metadata"]["name"], component_of(pod), command or ())
    raise typer.Exit(code)
