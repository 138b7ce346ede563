"""The command `restart`."""

from hvdchart.cli.options import Context, Helm, Name, Namespace, connect
from hvdchart.cli.terminal import say, show


def restart(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Start a run again, whether it has ended or not; the script resumes if it can.

    Example:
      hvdchart restart resnet50 && hvdchart logs resnet50

    Exit codes: 0 started; 6 Helm failed; 7 there is no such run, or the cluster cannot be used.
    """
    from hvdchart.run import control
    from hvdchart.run.helm import Helm as Program

    cluster = connect(context, namespace)
    generation = control.restart(cluster, name, Program(helm, context), say)
    show(f"run {name} starts again (master.generation {generation})")
