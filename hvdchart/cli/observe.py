"""The subcommands that read a run's state: list, status, logs and events."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import (
    Context,
    Format,
    Name,
    Namespace,
    check_format,
    parse_duration,
    print_document,
)
from hvdchart.cli.terminal import print_log
from hvdchart.errors import NoRunError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hvdchart.run.cluster import Cluster
    from hvdchart.run.logs import LogLine
    from hvdchart.run.status import Status

# How much of a failed master's log `status` prints.
_LAST_LINES = 25
# Move to the first line, and clear all below.
_CLEAR = "\x1b[H\x1b[J"
# Click keeps the lines of a paragraph that begins with \b, and fills the others.
_EPILOGS = {
    "list": """\b
Examples:
  hvdchart list
  hvdchart list --all-namespaces -o json

Exit codes: 0 listed, also when there is no run; 7 the cluster cannot be used.""",
    "status": """\b
Examples:
  hvdchart status resnet50
  hvdchart status resnet50 --watch
  hvdchart status resnet50 --namespace team -o json

Exit codes: 0 the run has not failed; 7 there is no such run, or the cluster cannot be used; 8 the
run failed.""",
    "logs": """\b
Examples:
  hvdchart logs resnet50 --master
  hvdchart logs resnet50 --rank 3 --since 5m
  hvdchart logs resnet50 --no-follow --tail 100

Exit codes: 0 all lines were printed; 7 there is no such run, or the cluster cannot be used; 130
interrupted.""",
    "events": """\b
Examples:
  hvdchart events resnet50
  hvdchart events resnet50 --follow

Exit codes: 0 printed, also when there are none; 7 the cluster cannot be used; 130 interrupted.""",
}


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    commands: dict[str, Callable[..., None]] = {
        "list": list_runs, "status": status, "logs": logs, "events": events,
    }  # fmt: skip
    for name, command in commands.items():
        app.command(name, epilog=_EPILOGS[name])(command)


def list_runs(
    namespace: Namespace = None,
    context: Context = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the runs of all namespaces.")
    ] = False,
    output: Format = "text",
) -> None:
    """List the runs of a namespace with their state."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.report import list_report
    from hvdchart.run.status import run_status

    check_format(output)
    cluster = Cluster.connect(context, namespace)
    releases = cluster.releases(everywhere=all_namespaces)
    runs = [(place, run_status(release)) for place, release in releases]
    if output != "text":
        print_document([{"namespace": place, **run.document()} for place, run in runs], output)
    elif runs:
        sys.stdout.write(list_report(runs))
    else:
        where = "in any namespace" if all_namespaces else f"in namespace {cluster.namespace}"
        sys.stderr.write(f"no runs {where}\n")


def status(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    output: Format = "text",
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Print the state again when it changes, until the run ends."),
    ] = False,
) -> None:
    """Print the state of a run, its progress, the reason and what to do."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.status import run_status

    check_format(output)
    cluster = Cluster.connect(context, namespace)
    if watch:
        current = _watch(cluster, name, output)
    else:
        current = run_status(cluster.release(name))
        _print_status(cluster, current, output)
    if output == "text" and current.state == "failed":
        _print_last_lines(cluster, current)
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
        typer.Option(
            "--tail", min=0, metavar="LINES", help="Number of last lines to print of each pod."
        ),
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
        int | None,
        typer.Option("--rank", min=0, metavar="N", help="Print the output of this rank only."),
    ] = None,
) -> None:
    """Print the logs of a run.

    Each line starts with the name of its pod. The command follows all pods until the run ends.
    """
    seconds = parse_duration(since)
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.logs import follow, read_logged_lines
    from hvdchart.run.ranks import check_tagged, run_of
    from hvdchart.run.status import newest_job

    cluster = Cluster.connect(context, namespace)
    release = cluster.release(name)
    if not release.exists:
        raise NoRunError(name, cluster.namespace)
    job = newest_job(release)
    if rank is not None and job:
        check_tagged(run_of(job))
    # Without a Job, which has a time to live, the run is over.
    read = follow if job and is_followed else read_logged_lines
    component = "" if rank is None and not master else "master"
    try:
        lines = read(cluster, name, tail=tail, since=seconds, component=component)
        print_log(lines if rank is None else _lines_of_rank(lines, rank))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def events(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    is_followed: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events until the run ends.")
    ] = False,
) -> None:
    """Print the Kubernetes events of a run, oldest first."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.events import follow_events
    from hvdchart.run.report import event_lines

    cluster = Cluster.connect(context, namespace)
    is_empty = True
    try:
        events = follow_events(cluster, name) if is_followed else cluster.events(name)
        for line in event_lines(events):
            is_empty = False
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if is_empty:
        sys.stderr.write(
            f"no events about {name} in namespace {cluster.namespace}; Kubernetes deletes events "
            "after an hour by default\n"
        )


def _print_status(cluster: "Cluster", current: "Status", output: str) -> None:
    from hvdchart.run.report import status_report

    if output != "text":
        print_document(current.document(), output)
    else:
        sys.stdout.write(status_report(current, cluster.namespace))


def _watch(cluster: "Cluster", name: str, output: str) -> "Status":
    """Print the status each time that it has changed, until the run is over, and return it."""
    from hvdchart.run.status import run_status
    from hvdchart.run.watch import watch_release

    last = None
    try:
        for release in watch_release(cluster, name):
            current = run_status(release)
            if current != last:
                if sys.stdout.isatty() and output == "text":
                    sys.stdout.write(_CLEAR)
                _print_status(cluster, current, output)
                sys.stdout.flush()
            last = current
            if current.over or current.state == "not found":
                break
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    return current


def _print_last_lines(cluster: "Cluster", failed: "Status") -> None:
    """The end of the last attempt's log, which explains more than its exit code."""
    from hvdchart.run.logs import LogLine

    masters = [pod.name for pod in failed.pods if pod.name.startswith(f"{failed.job}-")]
    for name in masters[-1:]:
        lines = cluster.log(name, "master", follow=False, tail=_LAST_LINES)
        print_log(LogLine(name, line) for line in lines)


def _lines_of_rank(lines: "Iterator[LogLine]", rank: int) -> "Iterator[LogLine]":
    from hvdchart.run.logs import LogLine
    from hvdchart.run.ranks import lines_of_rank

    for line in lines:
        for text in lines_of_rank([line.text], rank):
            yield LogLine(f"rank {rank}", text)
