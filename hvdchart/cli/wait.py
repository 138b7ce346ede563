"""The command `wait`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run, parse_duration
from hvdchart.cli.terminal import print_lines, raise_unless_finished
from hvdchart.errors import NoRunError, TimeLimitError


def wait(
    name: MaybeName = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long to wait, e.g. 5m (default: no limit)."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Wait for the end of a run; the exit code says how it ended.

    Examples:
      hvdchart wait resnet50
      hvdchart wait resnet50 --timeout 2h && hvdchart undeploy resnet50

    Exit codes: 0 the run finished; 7 there is no such run, or the cluster cannot be used; 8 the
    run failed, or cannot start; 124 the time-out passed first.
    """
    # Check the options first: the modules below are not needed for that.
    limit = parse_duration(timeout)
    from hvdchart.run.follow.changes import wait_for_end
    from hvdchart.run.state.progress import duration_text

    cluster, name = connect_to_run(name, context, namespace)
    current = wait_for_end(cluster, name, limit)
    if current.state == "not found":
        raise NoRunError(name, cluster.namespace, current.reason)
    if not (current.over or current.is_stuck):
        reason = f", {current.reason}" if current.reason else ""
        allowed = duration_text(limit or 0)
        raise TimeLimitError(
            f"run {name} has not ended within {allowed}: it is {current.state}{reason}"
        )
    raise_unless_finished(current)
    print_lines(f"run {name} finished")
