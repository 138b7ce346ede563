"""The command `report`."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Context, HelmProgram, MaybeName, Namespace, connect_to_run
from hvdchart.cli.terminal import print_remark, write_output


def report(
    name: MaybeName = None,
    namespace: Namespace = None,
    context: Context = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--write", "-w", metavar="FILE", help="Write to this file (default: NAME-report.html)."
        ),
    ] = None,
    helm_program: HelmProgram = "helm",
) -> None:
    """Write one file about a run: its page, logs, events, values, record and versions.

    Values with names of secrets, and text that looks like a secret, are masked. Read the file
    before you share it: the command cannot detect every secret that a script prints.

    Example:
      hvdchart report resnet50 -w resnet50.html

    Exit codes: 0 written; 5 the file cannot be written; 7 there is no such run, or the cluster
    cannot be used.
    """
    from hvdchart.run.helm import Helm
    from hvdchart.watch.report_file import make_report

    cluster, name = connect_to_run(name, context, namespace)
    text = make_report(cluster, name, Helm(helm_program, context))
    path = output or Path(f"{name}-report.html")
    write_output(path, text)
    print_remark(f"wrote {path}")
