"""The command `top`."""

from hvdchart.cli.options import Context, Name, Namespace, connect
from hvdchart.cli.terminal import note, show


def top(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Print what the pods of a run use, and the step and the samples per second of each rank.

    Example:
      hvdchart top resnet50

    Exit codes: 0 printed; 7 there is no such run, or the cluster cannot be used.
    """
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.top import read_usage, usage_table

    cluster = connect(context, namespace)
    usages = read_usage(cluster.present_run(name), Kubectl(cluster.namespace, context))
    if usages:
        show(*usage_table(usages))
    else:
        note(f"no pod of run {name} runs")
