"""The command `tensorboard`."""

import sys
from typing import Annotated

import typer

from hvdchart.cli.options import Context, Name, Namespace
from hvdchart.errors import ClusterError

EPILOG = """\b
Example:
  hvdchart tensorboard resnet50

Exit codes: 7 the run has no TensorBoard, or the cluster cannot be used; 130 interrupted."""
_TENSORBOARD_PORT = 6006


def tensorboard(
    name: Name,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Local port; 0: any that is free.")
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
