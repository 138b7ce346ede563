"""The command `image check`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, Engine, Namespace
from hvdchart.cli.terminal import print_lines, print_remark
from hvdchart.errors import ImageError


def check(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="The image: repository:tag.")],
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="mpirun (default) or direct (default for torch and jax).",
        ),
    ] = None,
    framework: Annotated[
        str, typer.Option(metavar="NAME", help="What the script uses: horovod, torch, jax or mpi.")
    ] = "horovod",
    with_mpi: Annotated[
        bool, typer.Option("--with-mpi", help="Accept a missing MPI: requirements.txt installs it.")
    ] = False,
    engine: Engine = None,
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="Run the check in a pod of the cluster.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Check whether an image meets the chart's requirements.

    Examples:
      hvdchart image check registry.example/team/train:1
      hvdchart image check registry.example/team/train:1 --mode direct --in-cluster
      hvdchart image check registry.example/team/bert:1 --framework torch

    Exit codes: 0 the chart can use the image; 7 the cluster cannot be used; 9 the image cannot be
    run, or lacks something.
    """
    from hvdchart.image import check_image as checks
    from hvdchart.image.engines import run_in
    from hvdchart.image.probe import DIRECT_FRAMEWORKS
    from hvdchart.run.kube.pods import UNKNOWN_USER_ID, run_pod
    from hvdchart.spec.model import FRAMEWORKS

    if framework not in FRAMEWORKS:
        names = ", ".join(FRAMEWORKS)
        raise typer.BadParameter(f"--framework {framework!r}: must be one of {names}")
    mode = mode or ("direct" if framework in DIRECT_FRAMEWORKS else "mpirun")
    if mode not in checks.CHECKED_MODES:
        raise typer.BadParameter(
            f"--mode {mode!r}: must be one of {', '.join(checks.CHECKED_MODES)}"
        )
    if in_cluster:
        from hvdchart.run.kube.cluster import Cluster

        output = run_pod(Cluster.connect(context, namespace), checks.probe_pod(image))
        errors = ""
    else:
        done = run_in(image, checks.probe_command(), UNKNOWN_USER_ID, engine, print_remark)
        output = done.stdout
        errors = done.stderr
    report = checks.read_probe(image, output, errors)
    requirements = checks.check_requirements(report, mode, framework, brings_mpi=with_mpi)
    print_lines(*checks.check_report(image, requirements))
    unmet = checks.find_unmet(requirements)
    if unmet:
        names = ", ".join(requirement.name for requirement in unmet)
        raise ImageError(f"{image} cannot be used with `launch.mode: {mode}`; missing: {names}")
