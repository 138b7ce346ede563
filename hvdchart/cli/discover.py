"""The subcommand `discover`: parsing and printing, no logic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.run import Context
from hvdchart.errors import ClusterError

if TYPE_CHECKING:
    from hvdchart.discover.nodes import Object
    from hvdchart.run.cluster import Cluster


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command()(discover)


def discover(
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only nodes with these labels: pool=gpu")
    ] = "",
    fit: Annotated[
        int | None,
        typer.Option("--fit", min=1, help="So many ranks, on nodes that are free for them now."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The spec's name.")] = "run",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    context: Context = None,
) -> None:
    """Read the cluster's nodes and write a spec, with a comment for what it could not know."""
    from hvdchart.discover.nodes import read_nodes
    from hvdchart.discover.spec_text import spec_text
    from hvdchart.files import write_atomically
    from hvdchart.run.cluster import Cluster

    cluster = Cluster.connect(context)
    nodes = cluster.nodes(selector)
    if not nodes:
        wanted = f"with labels {selector}" if selector else "at all"
        raise ClusterError(f"the cluster has no nodes {wanted}")
    pods = _pods(cluster, needed=fit is not None)
    facts = read_nodes(nodes, pods or [])
    text = spec_text(facts, name, fit, selector, pods_known=pods is not None)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)


def _pods(cluster: Cluster, *, needed: bool) -> list[Object] | None:
    """All pods; None when reading them is refused and they are not needed."""
    try:
        return cluster.pods_of_all_namespaces()
    except ClusterError as error:
        if needed:
            raise
        sys.stderr.write(f"hvdchart: {error}; the spec goes without\n")
        return None
