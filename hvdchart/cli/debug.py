"""The command `debug`."""

from hvdchart.cli.exec import run_in_pod
from hvdchart.cli.options import (
    Context,
    HelmProgram,
    Name,
    Namespace,
    Target,
    Words,
    connect_with_helm,
)
from hvdchart.cli.terminal import say


def debug(
    name: Name,
    target: Target = "0",
    command: Words = None,
    namespace: Namespace = None,
    context: Context = None,
    helm_program: HelmProgram = "helm",
) -> None:
    """Start a copy of a run's pods without the training, and open a shell in one.

    The run itself is not changed. When the shell ends, the copy is uninstalled.

    Examples:
      hvdchart debug resnet50
      hvdchart debug resnet50 master -- cat /horovod/generated/hostfile

    Exit codes: that of the command; 6 Helm failed; 7 there is no such run, or the cluster cannot
    be used; 8 the pods did not start.
    """
    from hvdchart.run.change.debug import debug_pods

    cluster, helm = connect_with_helm(context, namespace, helm_program)
    with debug_pods(cluster, name, helm, say) as run:
        run_in_pod(cluster, run, target, command, context)
