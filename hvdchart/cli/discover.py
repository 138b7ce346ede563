"""The command `discover`."""

from typing import Annotated, Any

import typer

from hvdchart.cli.options import Context, Output, connect_to_cluster
from hvdchart.cli.terminal import print_remark, write_output
from hvdchart.errors import ClusterError


def discover(
    selector: Annotated[
        str,
        typer.Option(
            "--selector", "-l", metavar="SELECTOR", help="Label selector for nodes, e.g. pool=gpu."
        ),
    ] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the run in the spec.")] = "run",
    output: Output = None,
    context: Context = None,
) -> None:
    """Write a spec for the cluster's nodes.

    Comments mark what the Kubernetes API does not provide.

    Examples:
      hvdchart discover -w run.spec.yaml
      hvdchart discover --selector pool=gpu -w run.spec.yaml

    Exit codes: 0 written; 5 the file cannot be written; 7 the cluster cannot be used, or has no
    such nodes.
    """
    from hvdchart.discover.nodes import read_nodes
    from hvdchart.discover.spec_text import spec_text

    cluster = connect_to_cluster(context)
    nodes = cluster.nodes(selector)
    if not nodes:
        labels = f" with labels {selector}" if selector else ""
        raise ClusterError(f"the cluster has no nodes{labels}")
    try:
        pods: list[dict[str, Any]] | None = cluster.all_pods()
    except ClusterError as error:
        pods = None
        print_remark(f"{error}; continuing without the pods")
    facts = read_nodes(nodes, pods or [], cluster.node_topologies())
    text = spec_text(facts, name, selector, are_pods_known=pods is not None)
    write_output(output, text)
