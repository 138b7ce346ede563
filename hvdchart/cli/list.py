"""The command `list`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, Format, Namespace, connect_to_cluster
from hvdchart.cli.terminal import print_document, print_lines, print_notes, print_remark
from hvdchart.errors import ClusterError


def list_(
    namespace: Namespace = None,
    context: Context = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces", "-A", help="List the runs of all namespaces that you may read."
        ),
    ] = False,
    output: Format = "text",
) -> None:
    """List the runs of a namespace with state, age, step and loss.

    Examples:
      hvdchart list
      hvdchart list --all-namespaces -o json

    Exit codes: 0 listed, also when there is no run; 7 there is no such namespace, or the cluster
    cannot be used.
    """
    from hvdchart.run.kube.runs import newest_runs, readable_runs
    from hvdchart.run.state.status_text import list_report, removal_command

    cluster = connect_to_cluster(context, namespace)
    is_all = True
    if all_namespaces:
        views, is_all = readable_runs(cluster)
    else:
        views = newest_runs(cluster)
    if not is_all:
        print_remark(
            "you may not list the runs of all namespaces: these are those that you may read"
        )
    runs = [(place, run.status) for place, run in views]
    if output != "text":
        print_document([{"namespace": place, **run.document()} for place, run in runs], output)
    elif runs:
        print_lines(*list_report(runs))
        for place, run in runs:
            if run.lacks_master:
                removal = removal_command(run, place)
                print_remark(f"{run.name}: its workers have no master: {removal} removes them")
    else:
        # Check this only if no run was found: a user who may list runs may lack the right to read
        # the namespace.
        if not all_namespaces and cluster.namespace_object() == {}:
            raise ClusterError(f"there is no namespace {cluster.namespace}")
        scope = "in any namespace" if all_namespaces else f"in namespace {cluster.namespace}"
        print_notes(f"no runs {scope}")
