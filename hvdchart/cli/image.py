"""The subcommand `image`: parsing and printing, no logic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hvdchart.cli.run import Context, Namespace
from hvdchart.errors import ImageError

app = typer.Typer(no_args_is_help=True, help="Container images.")


def register(parent: typer.Typer) -> None:
    """Add the subcommand."""
    parent.add_typer(app, name="image")


@app.callback()
def _image() -> None:
    """Container images."""


@app.command()
def check(
    image: Annotated[str, typer.Argument(help="repository:tag")],
    mode: Annotated[
        str, typer.Option("--mode", help="The launch mode: mpirun, horovodrun or elastic.")
    ] = "mpirun",
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="docker, podman or buildah; else the first that works."),
    ] = None,
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="Run it in a pod of the current cluster.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Say whether an image has what the chart needs of it, and what is missing."""
    from hvdchart.image.check import (
        MODES,
        STRANGE_USER,
        judge,
        missing,
        probe_command,
        probe_pod,
        read_probe,
        report,
    )
    from hvdchart.image.engines import ENGINES, run_in

    if mode not in MODES:
        raise typer.BadParameter(f"--mode {mode!r}: {', '.join(MODES)}")
    if engine is not None and engine not in ENGINES:
        raise typer.BadParameter(f"--engine {engine!r}: {', '.join(ENGINES)}")
    if in_cluster:
        from hvdchart.run.cluster import Cluster

        output, errors = Cluster.connect(context, namespace).output_of(probe_pod(image)), ""
    else:
        done = run_in(image, probe_command(), STRANGE_USER, engine)
        output, errors = done.stdout, done.stderr
    findings = judge(read_probe(image, output, errors), mode)
    sys.stdout.write(report(image, findings))
    lacking = missing(findings)
    if lacking:
        names = ", ".join(finding.what for finding in lacking)
        raise ImageError(f"{image} cannot be used with launch.mode {mode}: {names}")
