"""The command `status`."""

import time

from hvdchart.cli.options import Context, Format, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import print_document, print_lines
from hvdchart.errors import NoRunError, RunFailedError

# The number of lines of a failed master's log that `status` prints.
_STATUS_TAIL_LINES = 25


def status(
    name: MaybeName = None,
    namespace: Namespace = None,
    context: Context = None,
    output: Format = "text",
) -> None:
    """Print the state of a run, its progress, the reason and what to do.

    Examples:
      hvdchart status resnet50
      hvdchart status resnet50 --namespace team -o json

    Exit codes: 0 the run has not failed; 7 there is no such run, or the cluster cannot be used; 8
    the run failed.
    """
    from hvdchart.run.follow.lines import plain_lines
    from hvdchart.run.follow.logs import last_lines
    from hvdchart.run.kube.runs import newest_run
    from hvdchart.run.state.status_text import status_report

    cluster, name = connect_to_run(name, context, namespace)
    run = newest_run(cluster, name)
    current = run.status
    if output != "text":
        print_document(current.document(), output)
    else:
        print_lines(*status_report(current, cluster.namespace, time.time()))
    if output == "text" and current.state == "failed":
        # The end of the last master's log explains more than its exit code.
        lines = plain_lines(last_lines(cluster, run), run, current.failed_rank)
        print_lines(*lines[-_STATUS_TAIL_LINES:])
    if current.state == "not found":
        raise NoRunError(name, cluster.namespace, current.reason)
    if current.state == "failed":
        raise RunFailedError(f"run {name} failed")
