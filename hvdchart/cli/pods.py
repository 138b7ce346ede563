"""The subcommands that look into a run's pods: top, exec, stack, debug, tensorboard, timeline."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import Context, Helm, Name, Namespace
from hvdchart.cli.terminal import say
from hvdchart.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hvdchart.run.cluster import Cluster
    from hvdchart.run.release import Release

_TENSORBOARD_PORT = 6006
Target = Annotated[
    str,
    typer.Argument(
        metavar="RANK|POD", help="Number of a rank, or worker-N, or master, or the name of a pod."
    ),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="COMMAND...", help="Command (default: a shell).")
]
# Click keeps the lines of a paragraph that begins with \b, and fills the others.
_EPILOGS = {
    "top": """\b
Example:
  hvdchart top resnet50

Exit codes: 0 printed; 7 there is no such run, or the cluster cannot be used.""",
    "exec": """\b
Examples:
  hvdchart exec resnet50 3
  hvdchart exec resnet50 worker-0 -- nvidia-smi

Exit codes: that of the command; 7 there is no such pod, or the cluster cannot be used.""",
    "stack": """\b
Examples:
  hvdchart stack resnet50 3
  hvdchart stack resnet50

Exit codes: 0 printed; 7 there is no such rank, or the cluster cannot be used.""",
    "debug": """\b
Examples:
  hvdchart debug resnet50
  hvdchart debug resnet50 master -- cat /horovod/generated/hostfile

Exit codes: that of the command; 6 Helm failed; 7 there is no such run, or the cluster cannot be
used; 8 the pods did not start.""",
    "tensorboard": """\b
Example:
  hvdchart tensorboard resnet50

Exit codes: 7 the run has no TensorBoard, or the cluster cannot be used; 130 interrupted.""",
    "timeline": """\b
Example:
  hvdchart timeline resnet50 -w timeline.json

Exit codes: 0 written; 5 the file cannot be written, or is not a timeline; 7 the run has no
timeline, or the cluster cannot be used.""",
}


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    commands: dict[str, Callable[..., None]] = {
        "top": top, "exec": exec_in_pod, "stack": stack, "debug": debug,
        "tensorboard": tensorboard, "timeline": timeline,
    }  # fmt: skip
    for name, command in commands.items():
        app.command(name, epilog=_EPILOGS[name])(command)


def top(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Print what the pods of a run use, and the step and the images per second of each rank."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.control import present_release
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.top import read_usage, usage_table

    cluster = Cluster.connect(context, namespace)
    present_release(cluster, name)
    usages = read_usage(cluster, name, Kubectl(cluster.namespace, context))
    if usages:
        sys.stdout.write(usage_table(usages))
    else:
        sys.stderr.write(f"no pod of run {name} runs\n")


def exec_in_pod(
    name: Name,
    target: Target,
    command: Words = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Run a command, or a shell, in the pod of a rank, a worker or the master."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.control import present_release

    cluster = Cluster.connect(context, namespace)
    _run_in(cluster, present_release(cluster, name), target, command, context)


def stack(
    name: Name,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RANK|POD", help="Number of a rank, or worker-N (default: all ranks)."
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print the Python stack of each rank of a run; the ranks continue."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.control import present_release
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.stacks import read_stacks

    cluster = Cluster.connect(context, namespace)
    release = present_release(cluster, name)
    for text in read_stacks(release, target, Kubectl(cluster.namespace, context)):
        sys.stdout.write(text)


def debug(
    name: Name,
    target: Target = "0",
    command: Words = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
) -> None:
    """Start a copy of a run's pods without the training, and open a shell in one.

    The run itself is not changed. When the shell ends, the copy is uninstalled.
    """
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.debug import debug_pods
    from hvdchart.run.helm import Helm as Program

    cluster = Cluster.connect(context, namespace)
    with debug_pods(cluster, name, Program(helm, context), say) as release:
        _run_in(cluster, release, target, command, context)


def tensorboard(
    name: Name,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", help="Local port; 0: any that is free."),
    ] = _TENSORBOARD_PORT,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Forward a local port to a run's TensorBoard, until interrupted."""
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.control import present_release
    from hvdchart.run.kubectl import Kubectl

    cluster = Cluster.connect(context, namespace)
    present_release(cluster, name)
    services = [str(item["metadata"]["name"]) for item in cluster.services(name)]
    service = next((item for item in services if item.endswith("-tensorboard")), None)
    if service is None:
        raise ClusterError(
            f"run {name} has no TensorBoard: deploy it with --set values.tensorboard.enabled=true"
        )
    forwarding = Kubectl(cluster.namespace, context).forward(service, _TENSORBOARD_PORT, port)
    sys.stdout.write(f"TensorBoard of {name}: http://127.0.0.1:{forwarding.port}/\n")
    sys.stdout.flush()
    try:
        raise ClusterError(f"the connection to service {service} ended: {forwarding.wait()}")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def timeline(
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option("--write", "-w", metavar="FILE", help="Write the timeline to this file."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Fetch Horovod's timeline of a run, and name the ranks that the others waited for.

    Open the file in Perfetto (ui.perfetto.dev) or chrome://tracing.
    """
    from hvdchart.files import write_atomically
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.control import present_release
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.output import timeline_source
    from hvdchart.run.timeline import read_waits, waits_report

    cluster = Cluster.connect(context, namespace)
    pod, container, path = timeline_source(present_release(cluster, name))
    content = Kubectl(cluster.namespace, context).read(pod, container, ["cat", path])
    if file is not None:
        write_atomically(file, content)
        sys.stderr.write(f"{path} of pod {pod} is in {file}; open it in ui.perfetto.dev\n")
    sys.stdout.write(waits_report(read_waits(content.decode(errors="replace"))))


def _run_in(
    cluster: "Cluster",
    release: "Release",
    target: str,
    command: list[str] | None,
    context: str | None,
) -> None:
    """Run a command in the pod that a person means, and exit with its code."""
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.logs import main_container
    from hvdchart.run.output import running_pod

    pod = running_pod(release, target)
    kubectl = Kubectl(cluster.namespace, context)
    container = main_container(pod)
    raise typer.Exit(kubectl.run_in(pod["metadata"]["name"], container, command or ()))
