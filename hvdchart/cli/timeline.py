"""The command `timeline`."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Context, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import print_notes


def timeline(
    name: MaybeName = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--write",
            "-w",
            metavar="FILE",
            help="Write to this file (default: NAME-timeline.json).",
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Fetch Horovod's timeline of a run.

    Open the file in Perfetto (ui.perfetto.dev) or chrome://tracing.

    Example:
      hvdchart timeline resnet50 -w timeline.json

    Exit codes: 0 written; 5 the file cannot be written; 7 the run has no timeline, or the cluster
    cannot be used.
    """
    from hvdchart.files import write_atomically
    from hvdchart.run.kube.kubectl import Kubectl
    from hvdchart.run.kube.runs import present_run
    from hvdchart.run.state.output_pods import timeline_sources

    cluster, name = connect_to_run(name, context, namespace)
    path, sources = timeline_sources(present_run(cluster, name))
    pod, content = Kubectl(cluster.namespace, context).read_first(sources, ["cat", path])
    file = output or Path(f"{name}-timeline.json")
    write_atomically(file, content)
    print_notes(f"{path} of pod {pod} is in {file}; open it in ui.perfetto.dev")
