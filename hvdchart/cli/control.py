"""The commands that change a run: `stop`, `restart`, `scale`, `undeploy`."""

from contextlib import suppress
from typing import Annotated

import typer

from hvdchart.cli.options import Context, Helm, Name, Namespace, connect
from hvdchart.cli.terminal import note, show
from hvdchart.errors import NoRunError


def stop(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Stop a run: remove its pods and keep the release.

    Of a run that has ended, this removes the workers that it has left. To continue from the last
    checkpoint, use `restart`.

    Examples:
      hvdchart stop resnet50
      hvdchart restart resnet50

    Exit codes: 0 stopped, or ended before; 6 Helm failed; 7 there is no such run, or the cluster
    cannot be used.
    """
    from hvdchart.run import control
    from hvdchart.run.helm import Helm as Program

    cluster = connect(context, namespace)
    before = control.stop(cluster, name, Program(helm, context))
    again = f"start it again: hvdchart restart {name} -n {cluster.namespace}"
    if not before.over:
        show(f"run {name} stopped; {again}")
    else:
        what = "its workers are removed" if before.workers_left else "nothing was left to stop"
        show(f"run {name} has {before.state} already: {what}; {again}")


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
    generation = control.restart(cluster, name, Program(helm, context))
    show(f"run {name} starts again (master.generation {generation})")


def scale(
    name: Name,
    number: Annotated[
        int, typer.Argument(min=1, max=10_000, metavar="N", help="Number of workers.")
    ],
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Group of workers, if the run has several.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
) -> None:
    """Change the number of a run's workers.

    An active run is replaced by a run on that number of workers, and its script resumes from the
    last checkpoint. An elastic run continues instead.

    Examples:
      hvdchart scale resnet50 8
      hvdchart scale mixed 4 --group gpu

    Exit codes: 0 scaled; 6 Helm failed; 7 there is no such run or group, or the cluster cannot be
    used.
    """
    from hvdchart.quantity import pluralize
    from hvdchart.run import control
    from hvdchart.run.helm import Helm as Program

    cluster = connect(context, namespace)
    goes_on = control.scale(cluster, name, number, group, Program(helm, context))
    how = "and continues" if goes_on else "and starts again"
    show(
        f"run {name} has {pluralize(number, 'worker')} {how}; the next deploy of its spec "
        "restores the number there"
    )


def undeploy(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
    keep_data: Annotated[
        bool,
        typer.Option("--keep-data", help="Keep the PersistentVolumeClaims of the release itself."),
    ] = False,
) -> None:
    """Uninstall a run. The contents of its volumes are not deleted.

    PersistentVolumeClaims that the values themselves create (extraObjects) are part of the release
    and go with it, unless --keep-data is given.

    Examples:
      hvdchart undeploy resnet50 --namespace team
      hvdchart undeploy resnet50 --keep-data

    Exit codes: 0 uninstalled; 6 Helm failed; 7 there is no such run, or the cluster cannot be
    used.
    """
    from hvdchart.run.control import keep_claims, remove
    from hvdchart.run.helm import Helm as Program

    cluster = connect(context, namespace)
    program = Program(helm, context)
    kept = []
    # Nothing but Helm deletes claims.
    with suppress(NoRunError):
        kept = keep_claims(cluster, name, program) if keep_data else []
    removed = remove(cluster, name, program)
    note(f"release {name} uninstalled from namespace {cluster.namespace}")
    note(*(f"removed, although Helm did not know it: {item}" for item in removed))
    note(*(f"kept: persistentvolumeclaim {claim}" for claim in kept))
