"""The command `events`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import note, show


def events(
    name: MaybeName = None,
    namespace: Namespace = None,
    context: Context = None,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events until the run ends.")
    ] = False,
) -> None:
    """Print the Kubernetes events of a run, oldest first.

    Examples:
      hvdchart events resnet50
      hvdchart events resnet50 --follow

    Exit codes: 0 printed, also when there are none; 7 there is no such run, or the cluster cannot
    be used; 130 interrupted.
    """
    from hvdchart.run.follow.changes import follow_events
    from hvdchart.run.kube.runs import present_run, read_release
    from hvdchart.run.state.status_text import event_lines

    cluster, name = connect_to_run(name, context, namespace)
    is_empty = True
    events = follow_events(cluster, name) if is_followed else read_release(cluster, name).events
    for line in event_lines(events):
        is_empty = False
        show(line)
    if is_empty:
        # Kubernetes may have deleted the events of the run. Raise NoRunError if there is no such
        # run.
        present_run(cluster, name)
        note(
            f"no events about {name} in namespace {cluster.namespace}; Kubernetes deletes events "
            "after an hour by default"
        )
