"""The command line of localkube."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from devtools.common.errors import DevtoolsError
from devtools.common.ui import note, show_error
from devtools.localkube import cluster, images, link
from devtools.localkube.instance import LAST_NODE, current_instance
from devtools.toolchain import tools

app = typer.Typer(
    name="localkube",
    help="Runs a real Kubernetes of one to four nodes, built from pinned Go modules, on this"
    " machine. $LOCALKUBE_NAME names the cluster (default: hvd).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


Number = Annotated[int | None, typer.Argument(min=2, max=LAST_NODE)]


@app.command()
def up(
    nodes: Annotated[
        int, typer.Option(help="Start nodes until there are so many.", min=1, max=LAST_NODE)
    ] = 1,
) -> None:
    """Start the cluster and print its kubeconfig's path. Builds and installs what is missing."""
    print(cluster.up(nodes=nodes))


@app.command()
def down(
    remove_images: Annotated[
        bool, typer.Option("--images", help="Also remove the cluster's images.")
    ] = False,
) -> None:
    """Stop the cluster and remove its state. Its images stay for the next start."""
    name = current_instance().name
    stopped = cluster.down(images=remove_images)
    note(f"cluster {name!r} is stopped" if stopped else f"cluster {name!r} was not running")


@app.command()
def add_node(number: Number = None) -> None:
    """Start the next node, or that of a number, and print its name. `load` loads into all nodes."""
    print(cluster.add_node(number=number).node_name)


@app.command()
def remove_node(number: Number = None) -> None:
    """Stop the last node, or that of a number, at once, as a power cut does. Its images stay."""
    removed = cluster.remove_node(number=number)
    note(f"{removed.node_name} is removed" if removed else "there was no such node")


@app.command()
def shape(
    rate: Annotated[str | None, typer.Option(help="In each direction, such as 1gbit.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Remove the limits.")] = False,
) -> None:
    """Limit the network of each node but the first. A node that is added later has no limit."""
    if off == bool(rate):
        raise typer.BadParameter("give --rate or --off")
    for node in link.shape(current_instance(), rate):
        print(f"{node.node_name}: {rate or 'no limit'}")


@app.command()
def status() -> None:
    """Show the cluster's health. The exit status is 0 only when every part is healthy."""
    health = cluster.status()
    if not health.is_running:
        print(f"cluster {current_instance().name!r} is not running")
    for part in health.parts:
        print(f"{part.name:32} {'healthy' if part.is_healthy else 'BROKEN':8} {part.detail}")
    if not health.is_healthy:
        raise typer.Exit(1)


@app.command()
def load(sources: Annotated[list[str], typer.Argument(metavar="IMAGE...")]) -> None:
    """Load images into the cluster: OCI or docker archives, or images of a local builder."""
    for source in sources:
        for image in images.load_everywhere(source):
            result = "was already loaded" if image.is_skipped else "loaded"
            print(f"{' '.join(image.names) or image.id}: {result}")


@app.command()
def kubeconfig() -> None:
    """Print the path of the cluster's kubeconfig."""
    print(current_instance().kubeconfig)


@app.command()
def tool(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(tools.TOOL_NAMES)}.")],
) -> None:
    """Print the path of a tool, which is built first if the cache does not have it."""
    print(tools.tool(name))


def main() -> None:
    """Run the command. Print an error with its remedy, without a traceback."""
    try:
        app()
    except DevtoolsError as error:
        show_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
