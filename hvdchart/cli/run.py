"""The subcommands for runs in a cluster: deploy, undeploy, list, status, logs and events."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import (
    Code,
    Context,
    CreateNamespace,
    Files,
    Format,
    Helm,
    Name,
    Namespace,
    Settings,
    Specs,
    check_format,
    code_values,
    plan_specs,
    print_json,
    print_warnings,
)
from hvdchart.errors import ClusterError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hvdchart.run.cluster import Cluster
    from hvdchart.run.logs import LogLine
    from hvdchart.run.status import Status

# How much of a failed master's log `status` prints.
_LAST_LINES = 25
# Click keeps the lines of a paragraph that begins with \b, and fills the others.
_EPILOGS = {
    "deploy": """\b
Examples:
  hvdchart deploy run.spec.yaml
  hvdchart deploy run.spec.yaml --set nodes.0.count=8 --detach

Exit codes: 0 the run finished; 3, 4 the spec or the values are wrong; 6 Helm failed; 7 the cluster
cannot be used; 8 the run failed; 130 interrupted, and the run continues.""",
    "undeploy": """\b
Example:
  hvdchart undeploy resnet50 --namespace team

Exit codes: 0 uninstalled; 6 Helm failed; 7 there is no such run, or the cluster cannot be used.""",
    "list": """\b
Examples:
  hvdchart list
  hvdchart list --all-namespaces -o json

Exit codes: 0 listed, also when there is no run; 7 the cluster cannot be used.""",
    "status": """\b
Examples:
  hvdchart status resnet50
  hvdchart status resnet50 --namespace team -o json

Exit codes: 0 the run has not failed; 7 there is no such run, or the cluster cannot be used; 8 the
run failed.""",
    "logs": """\b
Examples:
  hvdchart logs resnet50 --master
  hvdchart logs resnet50 --no-follow --tail 100

Exit codes: 0 all lines were printed; 7 there is no such run, or the cluster cannot be used; 130
interrupted.""",
    "events": """\b
Example:
  hvdchart events resnet50

Exit codes: 0 printed, also when there are none; 7 the cluster cannot be used.""",
}
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    commands: dict[str, Callable[..., None]] = {
        "deploy": deploy, "undeploy": undeploy, "list": list_runs, "status": status, "logs": logs,
        "events": events,
    }  # fmt: skip
    for name, command in commands.items():
        app.command(name, epilog=_EPILOGS[name])(command)


def deploy(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    code: Code = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
    create_namespace: CreateNamespace = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when Helm is done; do not follow the logs.")
    ] = False,
) -> None:
    """Install or upgrade a run and follow its logs until it ends.

    Interrupting the command does not stop the run.
    """
    from hvdchart.quantity import pluralize
    from hvdchart.run import helm as helm_module
    from hvdchart.run.cluster import Cluster

    _, plan = plan_specs(specs, files, settings, code_values(code))
    print_warnings(plan)
    cluster = Cluster.connect(context, namespace)
    release = helm_module.deploy(
        plan, cluster.namespace, context=context, helm=helm, create_namespace=create_namespace
    )
    sys.stderr.write(
        f"release {release.name} in namespace {release.namespace}, revision {release.revision}: "
        f"{pluralize(plan.ranks, 'rank')} on {pluralize(plan.workers, 'worker')}\n"
    )
    if detach:
        sys.stderr.write(f"next: hvdchart logs {release.name} --namespace {release.namespace}\n")
        return
    try:
        _follow(cluster, release.name)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nthe run continues: hvdchart logs {release.name} -n {release.namespace}\n"
        )
        raise typer.Exit(130) from None


def undeploy(
    name: Name, namespace: Namespace = None, context: Context = None, helm: Helm = "helm"
) -> None:
    """Uninstall a run. The contents of its volumes are not deleted."""
    from hvdchart.run import helm as helm_module
    from hvdchart.run.cluster import Cluster

    cluster = Cluster.connect(context, namespace)
    helm_module.undeploy(name, cluster.namespace, context=context, helm=helm)
    sys.stderr.write(f"release {name} uninstalled from namespace {cluster.namespace}\n")


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
    found = cluster.releases(everywhere=all_namespaces)
    runs = [(place, run_status(release)) for place, release in found]
    if output == "json":
        print_json([{"namespace": place, **run.document()} for place, run in runs])
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
) -> None:
    """Print the state of a run, the reason and what to do."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.status import run_status

    check_format(output)
    cluster = Cluster.connect(context, namespace)
    current = run_status(cluster.release(name))
    if output == "json":
        print_json(current.document())
    else:
        from hvdchart.run.report import status_report

        sys.stdout.write(status_report(current, cluster.namespace))
        if current.state == "failed":
            _print_last_lines(cluster, current)
    if current.state == "not found":
        raise ClusterError(f"no run {name} in namespace {cluster.namespace}: {current.reason}")
    if current.state == "failed":
        raise RunFailedError(f"run {name} failed")


def logs(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="Print the lines logged so far and return.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", min=0, metavar="LINES", help="Last lines to print of each pod."),
    ] = None,
    master: Annotated[
        bool,
        typer.Option("--master", help="Print the master's log only: it has the ranks' output."),
    ] = False,
) -> None:
    """Print the logs of a run.

    Each line starts with its pod. Follows the logs of all pods until the run ends.
    """
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.logs import follow, read_past

    cluster = Cluster.connect(context, namespace)
    release = cluster.release(name)
    if not release.exists:
        raise ClusterError(f"no run {name} in namespace {cluster.namespace}")
    # Without a Job, which has a time to live, the run is over.
    read = follow if release.jobs and not no_follow else read_past
    try:
        _print(read(cluster, name, tail=tail, component="master" if master else ""))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def events(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Print the Kubernetes events of a run, oldest first."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.report import event_lines

    cluster = Cluster.connect(context, namespace)
    listed = cluster.events(name)
    if not listed:
        sys.stderr.write(
            f"no events about {name} in namespace {cluster.namespace}; Kubernetes deletes events "
            "after an hour by default\n"
        )
    sys.stdout.writelines(f"{line}\n" for line in event_lines(listed))


def _follow(cluster: "Cluster", name: str) -> None:
    from hvdchart.run.logs import follow
    from hvdchart.run.report import status_report
    from hvdchart.run.status import run_status

    current = run_status(cluster.release(name))
    if current.job and current.state != "suspended":
        _print(follow(cluster, name, warnings=True))
        current = run_status(cluster.release(name))
    sys.stderr.write(status_report(current, cluster.namespace))
    if current.state not in ("finished", "suspended"):
        raise RunFailedError(f"run {name} {current.state}: {current.reason}")


def _print_last_lines(cluster: "Cluster", failed: "Status") -> None:
    """The end of the last attempt's log, which explains more than its exit code."""
    from hvdchart.run.logs import LogLine

    masters = [pod.name for pod in failed.pods if pod.name.startswith(f"{failed.job}-")]
    for name in masters[-1:]:
        lines = cluster.log(name, "master", follow=False, tail=_LAST_LINES)
        _print(LogLine(name, line) for line in lines)


def _print(lines: "Iterable[LogLine]") -> None:
    colours: dict[str, str] = {}
    # https://no-color.org
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in lines:
        prefix = f"[{line.pod}]"
        if coloured:
            colour = colours.setdefault(line.pod, _COLOURS[len(colours) % len(_COLOURS)])
            prefix = typer.style(prefix, fg=colour)
        sys.stdout.write(f"{prefix} {line.text}\n")
        sys.stdout.flush()
