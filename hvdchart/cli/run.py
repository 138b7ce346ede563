"""The subcommands for a run in a cluster: deploy, undeploy, status, logs, events; no logic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import Files, Settings, Specs, planned
from hvdchart.errors import ClusterError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hvdchart.run.cluster import Cluster
    from hvdchart.run.logs import LogLine
    from hvdchart.run.status import Status

Name = Annotated[str, typer.Argument(help="The run's name: the Helm release.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The context's own when left out.")
]
Context = Annotated[
    str | None, typer.Option("--context", help="The kubeconfig's context; its current one else.")
]
Helm = Annotated[str, typer.Option("--helm", help="The Helm program.")]
_LAST_LINES = 25
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    for command in (deploy, undeploy, status, logs, events):
        app.command()(command)


def deploy(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
    create_namespace: Annotated[
        bool, typer.Option("--create-namespace", help="Make the namespace if it is not there.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Do not follow the run; return when Helm is done.")
    ] = False,
) -> None:
    """Install a spec's run, or upgrade it, and follow its logs to the end.

    Interrupting it leaves the run as it is.
    """
    from hvdchart.run import helm as helm_module
    from hvdchart.run.cluster import Cluster

    _, plan = planned(specs, files, settings)
    for warning in plan.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    cluster = Cluster.connect(context, namespace)
    done = helm_module.deploy(
        plan, cluster.namespace, context=context, helm=helm, create_namespace=create_namespace
    )
    sys.stderr.write(
        f"release {done.name} in namespace {done.namespace}, revision {done.revision}: "
        f"{plan.ranks} ranks on {plan.workers} workers\n"
    )
    if detach:
        sys.stderr.write(f"next: hvdchart logs {done.name} --namespace {done.namespace}\n")
        return
    try:
        _follow(cluster, done.name)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nit goes on: hvdchart logs {done.name} -n {done.namespace}\n")
        raise typer.Exit(130) from None


def undeploy(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Stop a run and remove all of it but what it wrote to its volumes."""
    from hvdchart.run import helm as helm_module
    from hvdchart.run.cluster import Cluster

    cluster = Cluster.connect(context, namespace)
    helm_module.undeploy(name, cluster.namespace, context=context, helm=helm)
    sys.stderr.write(f"release {name} is gone from namespace {cluster.namespace}\n")


def status(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="text or json.", metavar="FORMAT")
    ] = "text",
) -> None:
    """Say how a run is doing, why, and what to do about it.

    Status 8 when it failed, 7 when there is none of that name.
    """
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.status import status_of

    if output not in ("text", "json"):
        raise typer.BadParameter(f"--output {output!r}: text or json")
    cluster = Cluster.connect(context, namespace)
    found = status_of(cluster.release(name))
    if output == "json":
        import json

        sys.stdout.write(json.dumps(found.document(), indent=2) + "\n")
    else:
        from hvdchart.run.report import report

        sys.stdout.write(report(found, cluster.namespace))
        if found.state == "failed":
            _print_end(cluster, found)
    if found.state == "not found":
        raise ClusterError(f"no run {name} in namespace {cluster.namespace}: {found.reason}")
    if found.state == "failed":
        raise RunFailedError(f"run {name} failed")


def logs(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="Print what there is and return.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Of each pod, its last lines only.")
    ] = None,
    master: Annotated[
        bool, typer.Option("--master", help="The master's log only: it has the ranks' output.")
    ] = False,
) -> None:
    """Print the logs of all pods of a run, each line with its pod, until the run is over."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.logs import follow, past

    cluster = Cluster.connect(context, namespace)
    release = cluster.release(name)
    if not release.found:
        raise ClusterError(f"no run {name} in namespace {cluster.namespace}")
    # Without a Job there is no end to await: it had a time to live.
    read = follow if release.jobs and not no_follow else past
    try:
        _print(read(cluster, name, tail=tail, component="master" if master else ""))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def events(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Print the cluster's events about a run, oldest first."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.report import event_lines

    cluster = Cluster.connect(context, namespace)
    found = cluster.events(name)
    if not found:
        sys.stderr.write(
            f"no events about {name} in namespace {cluster.namespace}; clusters forget them "
            "after an hour or so\n"
        )
    sys.stdout.writelines(f"{line}\n" for line in event_lines(found))


def _follow(cluster: Cluster, name: str) -> None:
    from hvdchart.run.logs import follow
    from hvdchart.run.report import report
    from hvdchart.run.status import status_of

    found = status_of(cluster.release(name))
    if found.job and found.state != "suspended":
        _print(follow(cluster, name, warnings=True))
        found = status_of(cluster.release(name))
    sys.stderr.write(report(found, cluster.namespace))
    if found.state not in ("finished", "suspended"):
        raise RunFailedError(f"run {name} {found.state}: {found.reason}")


def _print_end(cluster: Cluster, found: Status) -> None:
    """The last lines of the last attempt's log, which say more than an exit code does."""
    from hvdchart.run.logs import LogLine

    masters = [pod.name for pod in found.pods if pod.name.startswith(f"{found.job}-")]
    for name in masters[-1:]:
        lines = cluster.log(name, "master", follow=False, tail=_LAST_LINES)
        _print(LogLine(name, line) for line in lines)


def _print(lines: Iterable[LogLine]) -> None:
    colours: dict[str, str] = {}
    coloured = sys.stdout.isatty()
    for line in lines:
        prefix = f"[{line.pod}]"
        if coloured:
            colour = colours.setdefault(line.pod, _COLOURS[len(colours) % len(_COLOURS)])
            prefix = typer.style(prefix, fg=colour)
        sys.stdout.write(f"{prefix} {line.text}\n")
        sys.stdout.flush()
