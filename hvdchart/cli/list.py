"""The command `list`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, Format, Namespace, connect, print_document
from hvdchart.cli.terminal import note, show


def list_(
    namespace: Namespace = None,
    context: Context = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the runs of all namespaces.")
    ] = False,
    output: Format = "text",
) -> None:
    """List the runs of a namespace with their state.

    Examples:
      hvdchart list
      hvdchart list --all-namespaces -o json

    Exit codes: 0 listed, also when there is no run; 7 the cluster cannot be used.
    """
    from hvdchart.run.report import list_report
    from hvdchart.run.status import run_status

    cluster = connect(context, namespace)
    releases = cluster.releases(everywhere=all_namespaces)
    runs = [(place, run_status(release)) for place, release in releases]
    if output != "text":
        print_document([{"namespace": place, **run.document()} for place, run in runs], output)
    elif runs:
        show(*list_report(runs))
    else:
        where = "in any namespace" if all_namespaces else f"in namespace {cluster.namespace}"
        note(f"no runs {where}")
