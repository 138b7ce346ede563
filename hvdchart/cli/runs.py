"""The commands that tell of runs: `list`, `status`, `logs`, `events`, `wait`."""

import re
from typing import Annotated

import typer

from hvdchart.cli import options
from hvdchart.cli.options import (
    Context,
    Format,
    Name,
    Namespace,
    connect,
    parse_duration,
    print_document,
)
from hvdchart.cli.terminal import clear_screen, note, print_log, raise_unless_finished, show
from hvdchart.errors import ClusterError, NoRunError, RunFailedError, TimeLimitError


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


# How much of a failed master's log `status` prints.
_LAST_LINES = 25
# Colours and bold text.
_STYLES = re.compile(r"\x1b\[[0-9;:]*m")


def status(
    name: options.Name,
    namespace: options.Namespace = None,
    context: options.Context = None,
    output: options.Format = "text",
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Print the state again when it changes, until the run ends."),
    ] = False,
) -> None:
    """Print the state of a run, its progress, the reason and what to do.

    Examples:
      hvdchart status resnet50
      hvdchart status resnet50 --watch
      hvdchart status resnet50 --namespace team -o json

    Exit codes: 0 the run has not failed; 7 there is no such run, or the cluster cannot be used; 8
    the run failed.
    """
    from hvdchart.run.report import status_report
    from hvdchart.run.status import run_status
    from hvdchart.run.watch import watch_release

    cluster = options.connect(context, namespace)
    last = None
    for release in watch_release(cluster, name) if watch else [cluster.release(name)]:
        current = run_status(release)
        if current != last and output != "text":
            options.print_document(current.document(), output)
        elif current != last:
            if watch:
                clear_screen()
            show(*status_report(current, cluster.namespace))
        last = current
        if current.over or current.state == "not found":
            break
    if output == "text" and current.state == "failed":
        # The end of the last attempt's log explains more than its exit code.
        masters = [pod.name for pod in current.pods if pod.name.startswith(f"{current.job}-")]
        for master in masters[-1:]:
            for line in cluster.log(master, "master", follow=False, tail=_LAST_LINES):
                # What a progress bar has written over is not shown, as on a terminal.
                text = _STYLES.sub("", line).rstrip("\r").rpartition("\r")[2]
                show(f"[{master}] {text}")
    if current.state == "not found":
        raise NoRunError(name, cluster.namespace, current.reason)
    if current.state == "failed":
        raise RunFailedError(f"run {name} failed")


def logs(
    name: Name,
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
) -> None:
    """Print the logs of a run.

    Each line starts with the name of its pod. The command follows all pods until the run ends.

    Examples:
      hvdchart logs resnet50 --master
      hvdchart logs resnet50 --rank 3 --since 5m
      hvdchart logs resnet50 --no-follow --tail 100

    Exit codes: 0 all lines were printed; 7 there is no such run, or the cluster cannot be used;
    130 interrupted.
    """
    seconds = parse_duration(since)
    from hvdchart.run.logs import LogLine, follow, read_logged_lines
    from hvdchart.run.ranks import check_tagged, lines_of_rank, pods_of_ranks, run_of
    from hvdchart.run.status import newest_job

    cluster = connect(context, namespace)
    job = newest_job(cluster.present_release(name))
    if rank is not None and job:
        run = run_of(job)
        check_tagged(run)
        last = sum(1 for _ in pods_of_ranks(run, {})) - 1
        if rank > last and not run.elastic:
            raise ClusterError(f"the run has no rank {rank}: name one from 0 to {last}")
    # Without a Job, which has a time to live, the run is over.
    read = follow if job and is_followed else read_logged_lines
    component = "" if rank is None and not master else "master"
    lines = read(cluster, name, tail=tail, since=seconds, component=component)
    if rank is not None:
        lines = (
            LogLine(f"rank {rank}", text)
            for line in lines
            for text in lines_of_rank([line.text], rank)
        )
    print_log(lines)


def events(
    name: Name,
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

    Exit codes: 0 printed, also when there are none; 7 the cluster cannot be used; 130 interrupted.
    """
    from hvdchart.run.report import event_lines
    from hvdchart.run.watch import follow_events

    cluster = connect(context, namespace)
    is_empty = True
    events = follow_events(cluster, name) if is_followed else cluster.events(name)
    for line in event_lines(events):
        is_empty = False
        show(line)
    if is_empty:
        note(
            f"no events about {name} in namespace {cluster.namespace}; Kubernetes deletes events "
            "after an hour by default"
        )


def wait(
    name: Name,
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
    run failed; 124 the time-out passed first.
    """
    limit = parse_duration(timeout)
    from hvdchart.run.watch import wait_for_end

    cluster = connect(context, namespace)
    current = wait_for_end(cluster, name, limit)
    if current.state == "not found":
        raise NoRunError(name, cluster.namespace, current.reason)
    if not current.over:
        raise TimeLimitError(
            f"run {name} has not ended within {timeout}: it is {current.state}"
            f"{f', {current.reason}' if current.reason else ''}"
        )
    raise_unless_finished(current)
    show(f"run {name} finished")
