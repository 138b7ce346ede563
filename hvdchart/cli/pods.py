"""The commands that look into pods: `exec`, `debug`, `stack`, `top`, `tensorboard` and others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli.options import Context, Helm, Name, Namespace, connect
from hvdchart.cli.terminal import note, say, show
from hvdchart.errors import ClusterError

if TYPE_CHECKING:
    from hvdchart.run.cluster import Cluster
    from hvdchart.run.release import Release

Target = Annotated[
    str,
    typer.Argument(
        metavar="RANK|POD", help="Number of a rank, or worker-N, or master, or the name of a pod."
    ),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="COMMAND...", help="Command (default: a shell).")
]


def exec_(
    name: Name,
    target: Target,
    command: Words = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Run a command, or a shell, in the pod of a rank, a worker or the master.

    Examples:
      hvdchart exec resnet50 3
      hvdchart exec resnet50 worker-0 -- nvidia-smi

    Exit codes: that of the command; 7 there is no such pod, or the cluster cannot be used.
    """
    cluster = connect(context, namespace)
    run_in_pod(cluster, cluster.present_release(name), target, command, context)


def run_in_pod(
    cluster: "Cluster",
    release: "Release",
    target: str,
    command: list[str] | None,
    context: str | None,
) -> None:
    """Run a command in the pod that a person means, and exit with its code."""
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.output import running_pod
    from hvdchart.run.release import component_of

    pod = running_pod(release, target)
    names = (pod["metadata"]["name"], component_of(pod))
    raise typer.Exit(Kubectl(cluster.namespace, context).run_in(*names, command or ()))


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

    Examples:
      hvdchart debug resnet50
      hvdchart debug resnet50 master -- cat /horovod/generated/hostfile

    Exit codes: that of the command; 6 Helm failed; 7 there is no such run, or the cluster cannot
    be used; 8 the pods did not start.
    """
    from hvdchart.run.debug import debug_pods
    from hvdchart.run.helm import Helm as Program

    cluster = connect(context, namespace)
    with debug_pods(cluster, name, Program(helm, context), say) as release:
        run_in_pod(cluster, release, target, command, context)


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
    """Print the Python stack of each rank of a run; the ranks continue.

    Examples:
      hvdchart stack resnet50 3
      hvdchart stack resnet50

    Exit codes: 0 printed; 7 there is no such rank, or the cluster cannot be used.
    """
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.stacks import read_stacks

    cluster = connect(context, namespace)
    release = cluster.present_release(name)
    for text in read_stacks(release, target, Kubectl(cluster.namespace, context)):
        show(*text.splitlines())


def top(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Print what the pods of a run use, and the step and the images per second of each rank.

    Example:
      hvdchart top resnet50

    Exit codes: 0 printed; 7 there is no such run, or the cluster cannot be used.
    """
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.top import read_usage, usage_table

    cluster = connect(context, namespace)
    usages = read_usage(cluster.present_release(name), Kubectl(cluster.namespace, context))
    if usages:
        show(*usage_table(usages))
    else:
        note(f"no pod of run {name} runs")


_TENSORBOARD_PORT = 6006


def tensorboard(
    name: Name,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Local port; 0: any that is free.")
    ] = _TENSORBOARD_PORT,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Forward a local port to a run's TensorBoard, until interrupted.

    Example:
      hvdchart tensorboard resnet50

    Exit codes: 7 the run has no TensorBoard, or the cluster cannot be used; 130 interrupted.
    """
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.watch import wait_until_served

    cluster = connect(context, namespace)
    kubectl = Kubectl(cluster.namespace, context)
    kubectl.command()
    cluster.present_release(name)
    services = [str(item["metadata"]["name"]) for item in cluster.services(name)]
    service = next((item for item in services if item.endswith("-tensorboard")), None)
    if service is None:
        raise ClusterError(
            f"run {name} has no TensorBoard: deploy it with --set values.tensorboard.enabled=true"
        )
    wait_until_served(cluster, name, say)
    if port:
        show(f"TensorBoard of {name}: http://127.0.0.1:{port}/")
    code = kubectl.forward(service, _TENSORBOARD_PORT, port)
    raise ClusterError(
        f"kubectl no longer forwards port {port} to service {service} (exit code {code}); if "
        "another program uses the port, choose another with --port"
    )


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

    Example:
      hvdchart timeline resnet50 -w timeline.json

    Exit codes: 0 written; 5 the file cannot be written, or is not a timeline; 7 the run has no
    timeline, or the cluster cannot be used.
    """
    from hvdchart.files import write_atomically
    from hvdchart.run.kubectl import Kubectl
    from hvdchart.run.output import timeline_sources
    from hvdchart.run.timeline import read_waits, waits_report

    cluster = connect(context, namespace)
    path, sources = timeline_sources(cluster.present_release(name))
    pod, content = Kubectl(cluster.namespace, context).read_first(sources, ["cat", path])
    if file is not None:
        write_atomically(file, content)
        note(f"{path} of pod {pod} is in {file}; open it in ui.perfetto.dev")
    show(*waits_report(read_waits(content.decode(errors="replace"))))


def code(
    name: Name,
    folder: Annotated[
        Path, typer.Option("--write", "-w", metavar="FOLDER", help="New folder for the files.")
    ],
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write the code of a run, as the cluster has it, to a folder.

    Example:
      hvdchart code resnet50 -w code-of-resnet50

    Exit codes: 0 written; 5 the folder cannot be written, or has files; 7 there is no such run
    with code, or the cluster cannot be used.
    """
    from hvdchart.code.unpack import unpack_code
    from hvdchart.run.output import code_source

    cluster = connect(context, namespace)
    config_map = cluster.config_map(code_source(cluster.present_release(name)))
    show(*(str(folder / file) for file in unpack_code(config_map, folder)))
