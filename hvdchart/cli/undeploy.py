"""The command `undeploy`."""

from contextlib import suppress
from typing import Annotated

import typer

from hvdchart.cli.options import Context, HelmProgram, Names, Namespace, connect_with_helm
from hvdchart.cli.terminal import note, say
from hvdchart.errors import ClusterError, NoRunError


def undeploy(
    names: Names,
    namespace: Namespace = None,
    context: Context = None,
    helm_program: HelmProgram = "helm",
    keep_data: Annotated[
        bool,
        typer.Option("--keep-data", help="Keep the PersistentVolumeClaims of the release itself."),
    ] = False,
) -> None:
    """Uninstall runs. The contents of their volumes are not deleted.

    PersistentVolumeClaims that the values themselves create (extraObjects) are part of the release
    and are removed with it, unless --keep-data is given.

    Examples:
      hvdchart undeploy resnet50 --namespace team
      hvdchart undeploy resnet50 resnet101 --keep-data

    Exit codes: 0 uninstalled; 6 Helm failed; 7 there is no such run, the name is that of
    another chart's release, or the cluster cannot be used.
    """
    from hvdchart.run.change.control import check_is_run, keep_claims, remove

    cluster, helm = connect_with_helm(context, namespace, helm_program)
    problem: ClusterError | None = None
    for name in names:
        kept = []
        try:
            check_is_run(cluster, name, helm)
            if keep_data:
                # Only Helm deletes claims: if Helm does not know the release, the claims stay.
                with suppress(NoRunError):
                    kept = keep_claims(cluster, name, helm)
            removed = remove(cluster, name, helm)
        except NoRunError as error:
            if len(names) == 1:
                raise
            # Continue with the other runs after a misspelt name.
            say(str(error))
            problem = ClusterError("not all runs were uninstalled")
            continue
        note(f"release {name} uninstalled from namespace {cluster.namespace}")
        note(*(f"removed, although Helm did not know it: {item}" for item in removed))
        note(*(f"kept: persistentvolumeclaim {claim}" for claim in kept))
    if problem:
        raise problem
