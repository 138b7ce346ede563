"""The command `events`."""

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import print_lines, print_notes


def events(
    name: MaybeName = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print the Kubernetes events of a run, oldest first.

    Example:
      hvdchart events resnet50

    Exit codes: 0 printed, also when there are none; 7 there is no such run, or the cluster cannot
    be used.
    """
    from hvdchart.run.kube.runs import present_run, read_release
    from hvdchart.run.state.status_text import event_lines

    cluster, name = connect_to_run(name, context, namespace)
    lines = list(event_lines(read_release(cluster, name).events))
    print_lines(*lines)
    if not lines:
        # Kubernetes may have deleted the events of the run. Raise NoRunError if there is no such
        # run.
        present_run(cluster, name)
        print_notes(
            f"no events about {name} in namespace {cluster.namespace}; Kubernetes deletes events "
            "after an hour by default"
        )
