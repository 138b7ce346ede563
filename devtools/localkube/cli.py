"""The command: parsing, printing, exit codes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from devtools.common.errors import LocalkubeError
from devtools.common.ui import console as steps
from devtools.localkube import cluster, images
from devtools.localkube.instance import current
from devtools.toolchain import tools

app = typer.Typer(
    name="localkube",
    help="A real one-node Kubernetes, built from pinned Go modules."
    " $LOCALKUBE_NAME names the cluster (hvd).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


@app.command()
def build(names: Annotated[list[str] | None, typer.Argument(metavar="[TOOL]...")] = None) -> None:
    """Build the named tools, or all, unless the cache has them."""
    for name in names or tools.BUILT:
        print(tools.tool(name))


@app.command()
def up() -> None:
    """Start the cluster; build and install what is missing. Prints the kubeconfig's path."""
    print(cluster.up())


@app.command()
def down(
    images_too: Annotated[
        bool, typer.Option("--images", help="Remove the image store too.")
    ] = False,
) -> None:
    """Stop the cluster and remove its state. Images are kept."""
    name = current().name
    done = cluster.down(images=images_too)
    steps.print(f"cluster {name!r} is down" if done else f"cluster {name!r} was not up")


@app.command()
def status(
    output: Annotated[Output, typer.Option("--output", "-o")] = Output.TABLE,
) -> None:
    """Show how the cluster is. Exit status 0 only when all of it is healthy."""
    health = cluster.status()
    if output is Output.JSON:
        print(json.dumps({**asdict(health), "healthy": health.healthy}, indent=2))
    elif not health.running:
        print(f"cluster {current().name!r} is not up")
    else:
        table = Table("part", "healthy", "detail")
        for part in health.parts:
            table.add_row(part.name, "yes" if part.healthy else "[red]no[/]", part.detail)
        Console().print(table)
    if not health.healthy:
        raise typer.Exit(1)


@app.command()
def load(sources: Annotated[list[str], typer.Argument(metavar="IMAGE...")]) -> None:
    """Load images: archives (OCI, docker), or references that Buildah, Podman or Docker has."""
    for source in sources:
        for image in images.load(source):
            what = "is there already" if image.skipped else "loaded"
            print(f"{' '.join(image.names) or image.id}: {what}")


@app.command()
def kubeconfig() -> None:
    """Print the kubeconfig's path."""
    print(current().kubeconfig)


@app.command()
def path(name: str) -> None:
    """Print the path of a tool; it is built first if it must be."""
    print(tools.tool(name))


def main() -> None:
    """Runs the command; an error that a person can act on is printed without a traceback."""
    try:
        app()
    except LocalkubeError as error:
        steps.print(f"[red]error:[/] {error.problem}", soft_wrap=True)
        steps.print(f"[bold]remedy:[/] {error.remedy}", soft_wrap=True)
        sys.exit(1)
