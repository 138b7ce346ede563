"""The command `hvdchart`: parses arguments, prints results, sets exit codes.

Subcommands import what they need when they run, so that `render` starts fast. Modules with
subcommands do not import `annotations` from `__future__`: Typer would compile the text of each
annotation twice at every start.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
import typer.main

from hvdchart.cli import bench as cli_bench
from hvdchart.cli import build as cli_build
from hvdchart.cli import control as cli_control
from hvdchart.cli import dev as cli_dev
from hvdchart.cli import discover as cli_discover
from hvdchart.cli import doctor as cli_doctor
from hvdchart.cli import expect as cli_expect
from hvdchart.cli import image as cli_image
from hvdchart.cli import migrate as cli_migrate
from hvdchart.cli import observe as cli_observe
from hvdchart.cli import pods as cli_pods
from hvdchart.cli import project as cli_project
from hvdchart.cli import run as cli_run
from hvdchart.cli import script as cli_script
from hvdchart.cli import tune as cli_tune
from hvdchart.cli.options import (
    Code,
    Files,
    Output,
    Settings,
    Specs,
    check_format,
    code_values,
    console,
    plan_specs,
    print_document,
    print_warnings,
    write_output,
)
from hvdchart.errors import DifferenceError, HvdchartError

_EPILOGS = {
    "render": """\b
Examples:
  hvdchart render run.spec.yaml -w values.yaml
  hvdchart render run.spec.yaml -w values.yaml --check
  hvdchart render run.spec.yaml --code . | helm upgrade --install run charts/horovod -f -

Exit codes: 0 rendered; 1 --check found a difference; 3, 4 the spec or the values are wrong; 5 a
file cannot be read or written; 6 Helm failed.""",
    "plan": """\b
Examples:
  hvdchart plan run.spec.yaml --explain
  hvdchart plan run.spec.yaml --set nodes.0.count=8 -o json
  hvdchart plan run.spec.yaml --expect resnet50 --speed 350 --gbit 25

Exit codes: 0 printed; 3 the spec is wrong; 5 a file cannot be read.""",
    "schema": """\b
Example:
  hvdchart schema > spec.schema.json

Exit codes: 0 printed.""",
}
app = typer.Typer(
    name="hvdchart",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan and run distributed Horovod training on Kubernetes.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from hvdchart import __version__

        sys.stdout.write(f"hvdchart {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Plan and run distributed Horovod training on Kubernetes."""


@app.command(epilog=_EPILOGS["render"])
def render(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    code: Code = None,
    output: Output = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with --write; exit 1 if it differs.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print the reason for each number to standard error."),
    ] = False,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Print the manifests that Helm would apply.")
    ] = False,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Namespace for --manifests."),
    ] = "default",
    helm: Annotated[
        str, typer.Option("--helm", metavar="PROGRAM", help="Helm program for --manifests.")
    ] = "helm",
) -> None:
    """Render the chart's values for a spec."""
    from hvdchart.files import difference
    from hvdchart.values.render import render_values

    if check and output is None:
        raise typer.BadParameter("--check needs --write: the file to compare with")
    paths, plan = plan_specs(specs, files, settings, code_values(code))
    print_warnings(plan)
    if manifests:
        from hvdchart.run.helm import manifests as helm_manifests

        text = helm_manifests(plan, namespace, helm)
    else:
        text = render_values(plan, " ".join(path.name for path in paths))
    if explain:
        from hvdchart.values.report import reason_table

        console(stderr=True).print(reason_table(plan))
    if output is not None and check:
        changes = difference(output, text)
        if changes:
            sys.stderr.write(changes)
            raise DifferenceError(
                f"{output} differs from what the spec renders; run without --check to update it"
            )
    else:
        write_output(output, text)


@app.command(epilog=_EPILOGS["plan"])
def plan(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="Output format: table, json or yaml."
        ),
    ] = "table",
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the reason for each number too.")
    ] = False,
    expect: Annotated[
        str,
        typer.Option(metavar="MODEL", help="Print the speed to expect of this network instead."),
    ] = "",
    speed: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="N", help="For --expect: samples/s of a rank that trains alone."
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For --expect: a result of `bench -w` to fit it to."),
    ] = None,
    gbit: Annotated[
        float,
        typer.Option(min=0.001, metavar="N", help="For --expect: Gbit/s of each node's network."),
    ] = 10.0,
) -> None:
    """Print the plan of a spec: groups, ranks, threads, resources, volumes and warnings."""
    from hvdchart.values import report as plan_report

    check_format(output, "table")
    _, made = plan_specs(specs, files, settings)
    if expect:
        expectation = cli_expect.expectation(made, expect, speed, gbit, measured)
        if output != "table":
            print_document(expectation, output)
        else:
            cli_expect.print_expectation(expectation)
        return
    if output != "table":
        print_document(plan_report.document(made), output)
        return
    tables = console()
    for part in plan_report.tables(made):
        tables.print(part)
    if explain:
        tables.print(plan_report.reason_table(made))


@app.command(epilog=_EPILOGS["schema"])
def schema() -> None:
    """Print the JSON schema of specs, for editors."""
    from hvdchart.spec.schema import json_schema

    sys.stdout.write(json_schema())


for _module in (
    *(cli_project, cli_build, cli_run, cli_script, cli_dev, cli_observe, cli_control, cli_pods),
    *(cli_doctor, cli_discover, cli_migrate, cli_tune, cli_bench, cli_image),
):
    _module.register(app)


@cache
def command() -> Callable[[], None]:
    """Return the command, which Typer builds from the annotations of all subcommands."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command; print an HvdchartError as one message and exit with its exit code."""
    try:
        command()()
    except HvdchartError as error:
        sys.stderr.write(f"hvdchart: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
