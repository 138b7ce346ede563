"""The command `stack`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, Name, Namespace, connect_to_cluster
from hvdchart.cli.terminal import print_lines


def stack(
    name: Name,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RANK|POD", help="Number of a rank, or worker-N (default: all ranks)."
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print the Python stack of each rank of a run; the ranks continue.

    Examples:
      hvdchart stack resnet50 3
      hvdchart stack resnet50

    Exit codes: 0 printed; 7 there is no such rank, or the cluster cannot be used.
    """
    from hvdchart.run.inside.stacks import read_stacks
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.run.kube.runs import present_run

    cluster = connect_to_cluster(context, namespace)
    run = present_run(cluster, name)
    for text in read_stacks(run, target, Kubectl(cluster.namespace, context)):
        print_lines(*text.splitlines())
