"""The subcommands that install and remove a run: deploy and undeploy."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import (
    Code,
    Context,
    CreateNamespace,
    Files,
    Helm,
    Name,
    Namespace,
    Settings,
    Specs,
    code_values,
    plan_specs,
    print_warnings,
)
from hvdchart.cli.terminal import print_log, raise_unless_finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from hvdchart.run.cluster import Cluster

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
}


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    commands: dict[str, Callable[..., None]] = {"deploy": deploy, "undeploy": undeploy}
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


def _follow(cluster: "Cluster", name: str) -> None:
    from hvdchart.run.logs import follow
    from hvdchart.run.report import status_report
    from hvdchart.run.status import run_status

    current = run_status(cluster.release(name))
    if current.job and current.state != "suspended":
        print_log(follow(cluster, name, warnings=True))
        current = run_status(cluster.release(name))
    sys.stderr.write(status_report(current, cluster.namespace))
    raise_unless_finished(current)
