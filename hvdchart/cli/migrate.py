"""The subcommand `migrate`: parsing and printing, no logic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command()(migrate)


def migrate(
    file: Annotated[
        Path, typer.Argument(help="An old chart's values file, or an MPIJob manifest.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the report here instead of to stderr.")
    ] = None,
) -> None:
    """Turn values of the old horovod charts, or a Kubeflow MPIJob, into values of this chart.

    The report says of each value of the file what became of it.
    """
    from hvdchart.files import write_atomically
    from hvdchart.migrate.convert import migrate as migrated
    from hvdchart.migrate.ledger import values_schema
    from hvdchart.migrate.report import report_text, values_text
    from hvdchart.spec.load import load_tree

    found = migrated(load_tree(file), values_schema())
    text, lines = values_text(found, file.name), report_text(found)
    if report is None:
        sys.stderr.write(lines)
    else:
        write_atomically(report, lines)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
