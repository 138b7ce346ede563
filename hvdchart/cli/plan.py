"""The command `plan`."""

from typing import Annotated, Literal

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.terminal import console, print_document


def _refuse_expectation(value: str) -> str:
    if value:
        problem = "--expect was removed: measure on your own nodes with `hvdchart bench`"
        raise typer.BadParameter(problem)
    return value


def plan(
    specs: options.Specs = None,
    files: options.Files = None,
    settings: options.Settings = None,
    output: Annotated[
        Literal["table", "json", "yaml"],
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="Output format: table, json or yaml."
        ),
    ] = "table",
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the reason for each number too.")
    ] = False,
    expect: Annotated[
        str,
        typer.Option("--expect", "--speed", "--gbit", hidden=True, callback=_refuse_expectation),
    ] = "",
) -> None:
    """Print the plan of a spec: groups, ranks, threads, resources, volumes and warnings.

    Examples:
      hvdchart plan run.spec.yaml --explain
      hvdchart plan run.spec.yaml --set nodes.0.count=8 -o json
      hvdchart plan train.py

    Exit codes: 0 printed; 3 the spec is wrong; 5 a file cannot be read.
    """
    from hvdchart.values import report as plan_report

    _, made = planning.plan_specs(specs, files, settings)
    if output != "table":
        print_document(plan_report.document(made), output)
        return
    tables = console()
    for part in plan_report.tables(made):
        tables.print(part)
    if explain:
        tables.print(plan_report.reason_table(made))
