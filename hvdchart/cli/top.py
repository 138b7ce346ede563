"""The command `top`."""

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import print_lines


def top(name: MaybeName = None, namespace: Namespace = None, context: Context = None) -> None:
    """Print what the pods of a run use, and the step and the samples per second of each rank.

    For pods with GPUs of NVIDIA, that is also the lowest and the highest utilization of the GPUs of
    each pod, and the memory of the fullest one: used and in all.

    Example:
      hvdchart top resnet50

    Exit codes: 0 printed; 7 no pod of such a run runs, or the cluster cannot be used.
    """
    from hvdchart.run.inside.top import read_usage, usage_table
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.run.kube.runs import present_run

    cluster, name = connect_to_run(name, context, namespace)
    usages = read_usage(present_run(cluster, name), Kubectl(cluster.namespace, context))
    print_lines(*usage_table(usages))
