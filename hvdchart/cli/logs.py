"""The command `logs`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run, parse_duration
from hvdchart.cli.terminal import print_log, print_remark
from hvdchart.errors import ClusterError


def logs(
    name: MaybeName = None,
    namespace: Namespace = None,
    context: Context = None,
    is_followed: Annotated[
        bool,
        typer.Option(
            "--follow/--no-follow",
            "-f",
            help="Print new lines until the run ends, or return after those logged so far.",
        ),
    ] = True,
    tail: Annotated[
        int | None,
        typer.Option(min=0, metavar="LINES", help="Number of last lines to print of each pod."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Leave out lines that are older, e.g. 90s, 5m, 2h."),
    ] = None,
    master: Annotated[
        bool,
        typer.Option("--master", help="Print the master's log only: it has the ranks' output."),
    ] = False,
    rank: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Print the output of this rank only.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Print each line as it was logged, with the name of its pod."),
    ] = False,
) -> None:
    """Print the logs of a run.

    A line starts with its rank, where the launcher names it, or with its worker; what the master
    prints has no such start. The boxes of launchers, TensorFlow's notes and lines about agent
    connections are left out. The command follows all pods until the run ends.

    Examples:
      hvdchart logs resnet50 --master
      hvdchart logs resnet50 --rank 3 --since 5m
      hvdchart logs resnet50 --no-follow --tail 100

    Exit codes: 0 all lines were printed; 7 there is no such run, or the cluster cannot be used;
    130 interrupted.
    """
    # Check the options first: the modules below are not needed for that.
    seconds = parse_duration(since)
    from hvdchart.run.follow.lines import readable_lines
    from hvdchart.run.follow.logs import LogLine, follow_logs, read_logged_lines
    from hvdchart.run.kube.runs import present_run
    from hvdchart.run.state.ranks import check_tagged, lines_of_rank, pods_of_ranks, run_of

    cluster, name = connect_to_run(name, context, namespace)
    run = present_run(cluster, name)
    if rank is not None and run.job:
        described = run_of(run.job)
        check_tagged(described, run.release.stateful_sets)
        last = len(list(pods_of_ranks(described, {}))) - 1
        if rank > last:
            raise ClusterError(f"the run has no rank {rank}: name one from 0 to {last}")
    # The Job has a time to live: without a Job, the run is over.
    read = follow_logs if run.job and is_followed else read_logged_lines
    # The master's log has the output of all ranks.
    component = "master" if master or rank is not None else ""
    lines = read(cluster, name, tail=tail, since=seconds, component=component)
    if rank is not None:
        lines = (
            LogLine(f"rank {rank}", text)
            for line in lines
            for text in lines_of_rank([line.text], rank)
        )
    elif not raw:
        lines = readable_lines(lines, run, print_remark)
    print_log(lines)
