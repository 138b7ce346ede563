"""The subcommands for an existing run: wait for its end, stop, restart and scale it."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import Context, Helm, Name, Namespace, parse_duration
from hvdchart.cli.terminal import raise_unless_finished
from hvdchart.errors import NoRunError, TimeLimitError

if TYPE_CHECKING:
    from collections.abc import Callable

# Click keeps the lines of a paragraph that begins with \b, and fills the others.
_EPILOGS = {
    "wait": """\b
Examples:
  hvdchart wait resnet50
  hvdchart wait resnet50 --timeout 2h && hvdchart undeploy resnet50

Exit codes: 0 the run finished; 7 there is no such run, or the cluster cannot be used; 8 the run
failed; 124 the time-out passed first.""",
    "stop": """\b
Examples:
  hvdchart stop resnet50
  hvdchart restart resnet50

Exit codes: 0 stopped; 6 Helm failed; 7 there is no such run, or the cluster cannot be used.""",
    "restart": """\b
Example:
  hvdchart restart resnet50 && hvdchart logs resnet50

Exit codes: 0 started; 6 Helm failed; 7 there is no such run, or the cluster cannot be used.""",
    "scale": """\b
Examples:
  hvdchart scale resnet50 8
  hvdchart scale mixed 4 --group gpu

Exit codes: 0 scaled; 6 Helm failed; 7 there is no such run or group, or the cluster cannot be
used.""",
}


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    commands: dict[str, Callable[..., None]] = {
        "wait": wait, "stop": stop, "restart": restart, "scale": scale,
    }  # fmt: skip
    for name, command in commands.items():
        app.command(name, epilog=_EPILOGS[name])(command)


def wait(
    name: Name,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long to wait, e.g. 5m (default: no limit)."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Wait for the end of a run; the exit code says how it ended."""
    limit = parse_duration(timeout)
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.watch import wait_for_end

    cluster = Cluster.connect(context, namespace)
    current = wait_for_end(cluster, name, limit)
    if current.state == "not found":
        raise NoRunError(name, cluster.namespace, current.reason)
    if not current.over:
        raise TimeLimitError(
            f"run {name} has not ended within {timeout}: it is {current.state}"
            f"{f', {current.reason}' if current.reason else ''}"
        )
    raise_unless_finished(current)
    sys.stdout.write(f"run {name} finished\n")


def stop(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Stop a run: remove its pods and keep the release.

    To continue from the last checkpoint, use `restart`.
    """
    from hvdchart.run import control
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.helm import Helm as Program

    cluster = Cluster.connect(context, namespace)
    control.stop(cluster, name, Program(helm, context))
    sys.stdout.write(f"run {name} stopped; start it again: hvdchart restart {name}\n")


def restart(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Start a run again, whether it has ended or not; the script resumes if it can."""
    from hvdchart.run import control
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.helm import Helm as Program

    cluster = Cluster.connect(context, namespace)
    generation = control.restart(cluster, name, Program(helm, context))
    sys.stdout.write(f"run {name} starts again (master.generation {generation})\n")


def scale(
    name: Name,
    number: Annotated[
        int, typer.Argument(min=1, max=10_000, metavar="N", help="Number of workers.")
    ],
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Group of workers, if the run has several."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
) -> None:
    """Change the number of a run's workers.

    An active run is replaced by a run on that number of workers, and its script resumes from the
    last checkpoint. An elastic run continues instead.
    """
    from hvdchart.quantity import pluralize
    from hvdchart.run import control
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.helm import Helm as Program

    cluster = Cluster.connect(context, namespace)
    goes_on = control.scale(cluster, name, number, group, Program(helm, context))
    how = "and continues" if goes_on else "and starts again"
    sys.stdout.write(
        f"run {name} has {pluralize(number, 'worker')} {how}; the next deploy of its spec "
        "restores the number there\n"
    )
