"""The command line of localkube."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from devtools.common.errors import DevtoolsError
from devtools.common.ui import note, show_error
from devtools.localkube import cluster, images
from devtools.localkube.instance import current
from devtools.toolchain import tools

app = typer.Typer(
    name="localkube",
    help="Runs a real Kubernetes of one node or two, built from pinned Go modules, on this machine."
    " $LOCALKUBE_NAME names the cluster (default: hvd).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


@app.command()
def up() -> None:
    """Start the cluster and print its kubeconfig's path. Builds and installs what is missing."""
    print(cluster.up())


@app.command()
def down(
    remove_images: Annotated[
        bool, typer.Option("--images", help="Also remove the cluster's images.")
    ] = False,
) -> None:
    """Stop the cluster and remove its state. Its images stay for the next start."""
    name = current().name
    stopped = cluster.down(images=remove_images)
    note(f"cluster {name!r} is stopped" if stopped else f"cluster {name!r} was not running")


@app.command()
def add_node() -> None:
    """Start a second node and print its name. It has its own images: `load` loads into both."""
    print(cluster.add_node().node_name)


@app.command()
def remove_node() -> None:
    """Stop the second node at once, as a power cut does. Its images stay."""
    removed = cluster.remove_node()
    note("the second node is removed" if removed else "there was no second node")


@app.command()
def status(
    output: Annotated[
        Output, typer.Option("--output", "-o", help="Format of the output.")
    ] = Output.TABLE,
) -> None:
    """Show the cluster's health. The exit status is 0 only when every part is healthy."""
    health = cluster.status()
    if output is Output.JSON:
        print(json.dumps({**asdict(health), "healthy": health.healthy}, indent=2))
    elif not health.running:
        print(f"cluster {current().name!r} is not running")
    else:
        for part in health.parts:
            print(f"{part.name:32} {'healthy' if part.healthy else 'BROKEN':8} {part.detail}")
    if not health.healthy:
        raise typer.Exit(1)


@app.command()
def load(sources: Annotated[list[str], typer.Argument(metavar="IMAGE...")]) -> None:
    """Load images into the cluster: OCI or docker archives, or images of a local builder."""
    first = current()
    nodes = [first, *([first.second] if first.second.containerd_socket.exists() else [])]
    for source in sources:
        for image in (image for node in nodes for image in images.load(source, node)):
            result = "was already loaded" if image.skipped else "loaded"
            print(f"{' '.join(image.names) or image.id}: {result}")


@app.command()
def kubeconfig() -> None:
    """Print the path of the cluster's kubeconfig."""
    print(current().kubeconfig)


@app.command()
def tool(name: Annotated[str, typer.Argument(help=f"One of: {', '.join(tools.NAMES)}.")]) -> None:
    """Print the path of a tool, which is built first if the cache does not have it."""
    print(tools.tool(name))


def main() -> None:
    """Runs the command, and prints an error that a person can act on without a traceback."""
    try:
        app()
    except DevtoolsError as error:
        show_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
