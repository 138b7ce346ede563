"""The command `scale`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, HelmProgram, Name, Namespace, connect_with_helm
from hvdchart.cli.terminal import print_lines, print_remark
from hvdchart.script.options import MAX_WORKERS


def scale(
    name: Name,
    number: Annotated[
        int, typer.Argument(min=1, max=MAX_WORKERS, metavar="N", help="Number of workers.")
    ],
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Group of workers, if the run has several.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    helm_program: HelmProgram = "helm",
) -> None:
    """Change the number of a run's workers.

    An active run is replaced by a run on that number of workers, and its script resumes from the
    last checkpoint. A run with a minimum continues instead, on any number from that minimum to the
    number that it was deployed with.

    Examples:
      hvdchart scale resnet50 8
      hvdchart scale mixed 4 --group gpu

    Exit codes: 0 scaled; 6 Helm failed; 7 there is no such run or group, or the cluster cannot be
    used.
    """
    from hvdchart.quantity import pluralize
    from hvdchart.run.change import control

    cluster, helm = connect_with_helm(context, namespace, helm_program)
    continues = control.scale(cluster, name, number, group, helm, print_remark)
    has = f"run {name} has {pluralize(number, 'worker')}"
    if continues:
        print_lines(f"{has} and continues; a deploy of the same spec leaves that number")
    else:
        print_lines(
            f"{has} and starts again; the next deploy of its spec restores the number there"
        )
