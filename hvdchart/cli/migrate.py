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
        Path, typer.Argument(help="The old chart's values file, or an MPIJob manifest.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the values to this file instead of stdout."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write the report to this file instead of stderr."),
    ] = None,
) -> None:
    """Convert values of the old horovod charts, or a Kubeflow MPIJob, to values of this chart.

    The report says what became of each value of the file: carried over, renamed, changed or
    dropped, with the reason, and what to check by hand.
    """
    from hvdchart.files import write_atomically
    from hvdchart.migrate.convert import migrate as migrate_tree
    from hvdchart.migrate.report import report_text, values_text
    from hvdchart.spec.load import load_tree
    from hvdchart.values.schema import values_schema

    migration = migrate_tree(load_tree(file), values_schema())
    values, lines = values_text(migration, file.name), report_text(migration)
    if report is None:
        sys.stderr.write(lines)
    else:
        write_atomically(report, lines)
    if output is None:
        sys.stdout.write(values)
    else:
        write_atomically(output, values)
