"""The command `migrate`: parsing and printing, no logic."""

from os.path import realpath
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Output, keep_inputs
from hvdchart.cli.terminal import print_notes, write_output


def migrate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Values of the old chart, an MPIJob, PyTorchJob, TrainJob or a script with one "
            "launcher's line (mpirun, srun, horovodrun or torchrun); - reads standard input.",
        ),
    ],
    output: Output = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the report to this file, not to stderr."),
    ] = None,
) -> None:
    """Convert values of the old chart, jobs and scripts to values of this chart.

    The report begins with what to check by hand, and says what became of each value: carried over,
    renamed, changed or dropped, with the reason. A file that is not understood is refused.

    Examples:
      hvdchart migrate old-values.yaml -w values.yaml
      hvdchart migrate mpijob.yaml -w values.yaml --report report.txt
      hvdchart migrate train.sh -w values.yaml

    Exit codes: 0 written; 3 the file is not understood, or says what the chart cannot do; 5 a file
    cannot be read or written.
    """
    from hvdchart.files import write_atomically
    from hvdchart.migrate.convert import migrate_file
    from hvdchart.migrate.migration_text import report_text, values_text
    from hvdchart.spec.load import read_bytes
    from hvdchart.spec.values_schema import values_schema

    if output and report and realpath(output) == realpath(report):
        raise typer.BadParameter("--write and --report name the same file")
    keep_inputs([output, report], [file])
    data, name = read_bytes(file)
    migration = migrate_file(data, name, values_schema())
    values = values_text(migration, file.name if file.name != "-" else "standard input")
    lines = report_text(migration)
    if report is None:
        print_notes(*lines.splitlines())
    else:
        # Before the values: without a report, nobody knows what to check in them.
        write_atomically(report, lines)
    write_output(output, values)
