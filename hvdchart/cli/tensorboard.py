"""The command `tensorboard`."""

from typing import Annotated

import typer

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import print_lines, print_notes, print_remark
from hvdchart.errors import ClusterError

_TENSORBOARD_PORT = 6006


def tensorboard(
    name: MaybeName = None,
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
    from hvdchart.run.follow.changes import wait_until_served
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.run.kube.runs import present_run

    cluster, name = connect_to_run(name, context, namespace)
    kubectl = Kubectl(cluster.namespace, context)
    kubectl.command()
    present_run(cluster, name)
    services = [str(service["metadata"]["name"]) for service in cluster.services(name)]
    service = next((service for service in services if service.endswith("-tensorboard")), None)
    if service is None:
        raise ClusterError(
            f"run {name} has no TensorBoard: deploy it with `--set values.tensorboard.enabled=true`"
        )
    wait_until_served(cluster, name, print_remark)
    if port:
        print_lines(f"TensorBoard of {name}: http://127.0.0.1:{port}/")
    code = kubectl.forward(service, _TENSORBOARD_PORT, port, print_notes)
    raise ClusterError(
        f"kubectl no longer forwards port {port} to service {service} (exit code {code}); if "
        "another program uses the port, choose another with --port"
    )
