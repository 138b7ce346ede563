"""The command: parsing, printing, exit codes; no logic. Subcommands import what they need."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli import discover as cli_discover
from hvdchart.cli import image as cli_image
from hvdchart.cli import migrate as cli_migrate
from hvdchart.cli import run as cli_run
from hvdchart.cli import tune as cli_tune
from hvdchart.cli.options import Files, Settings, Specs, planned
from hvdchart.errors import DifferenceError, HvdchartError

app = typer.Typer(
    name="hvdchart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Plans distributed Horovod training on Kubernetes.",
)


@app.callback()
def _root() -> None:
    """Plans distributed Horovod training on Kubernetes."""


@app.command()
def render(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when --output differs.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say on stderr where each number came from.")
    ] = False,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="What Helm would send, instead of values.")
    ] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace of --manifests.")
    ] = "default",
    helm: Annotated[str, typer.Option("--helm", help="The Helm program of --manifests.")] = "helm",
) -> None:
    """Turn a spec into a values file of the chart."""
    from hvdchart.files import difference, write_atomically
    from hvdchart.values.render import render_values

    if check and output is None:
        raise typer.BadParameter("--check needs --output: the file to compare with")
    paths, plan = planned(specs, files, settings)
    if manifests:
        from hvdchart.run.helm import manifests as helm_manifests

        text = helm_manifests(plan, namespace, helm)
    else:
        text = render_values(plan, " ".join(path.name for path in paths))
    if explain:
        from rich.console import Console

        from hvdchart.values.report import reason_table

        Console(stderr=True).print(reason_table(plan))
    if output is None:
        sys.stdout.write(text)
    elif check:
        changes = difference(output, text)
        if changes:
            sys.stderr.write(changes)
            raise DifferenceError(f"{output} is not what the spec renders; render it anew")
    else:
        write_atomically(output, text)


@app.command()
def plan(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="table or json.", metavar="FORMAT")
    ] = "table",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say where each number came from.")
    ] = False,
) -> None:
    """Show what a spec comes to: groups, ranks, threads, resources, volumes, warnings."""
    from hvdchart.values import report as plan_report

    if output not in ("table", "json"):
        raise typer.BadParameter(f"--output {output!r}: table or json")
    _, made = planned(specs, files, settings)
    if output == "json":
        import json

        sys.stdout.write(json.dumps(plan_report.document(made), indent=2) + "\n")
        return
    from rich.console import Console

    console = Console()
    for part in plan_report.tables(made):
        console.print(part)
    if explain:
        console.print(plan_report.reason_table(made))


@app.command()
def schema() -> None:
    """Print the JSON schema of specs, for editors."""
    from hvdchart.spec.schema import json_schema

    sys.stdout.write(json_schema())


for _more in (cli_discover, cli_image, cli_migrate, cli_run, cli_tune):
    _more.register(app)


def main() -> None:
    """Run the command; an HvdchartError becomes one message and its exit code."""
    try:
        app()
    except HvdchartError as error:
        sys.stderr.write(f"hvdchart: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
