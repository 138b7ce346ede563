"""The command `plan`."""

from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import make_console, print_document
from hvdchart.script.options import ScriptRun


@expand_option_groups
def plan(
    sources: options.RunSources = None,
    code: options.Code = None,
    *,
    script_run: ScriptRun,
    settings: options.Settings = None,
    fail_on_nan: options.FailOnNan = False,
    output: options.Format = "text",
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the reason for each number too.")
    ] = False,
) -> None:
    """Print the plan of a spec or a script: groups, ranks, threads, resources and warnings.

    A folder is a project: its spec and its code, as for deploy. The options from --workers to
    --name are for a script, as for `run`.

    Examples:
      hvdchart plan run.spec.yaml --explain
      hvdchart plan run.spec.yaml --set nodes.0.count=8 -o json
      hvdchart plan train.py --workers 4 --gpus 8 -- --epochs 3

    Exit codes: 0 printed; 2, 3, 4 an option or the spec has a wrong value; 5 a file cannot be read.
    """
    from hvdchart.values import plan_text as plan_report
    from hvdchart.values.check_values import checked_values

    chosen = options.chosen_settings(settings, fails_on_nan=fail_on_nan)
    script = planning.Script.of_words(sources or (), script_run, code)
    if script:
        planned = script.plan(chosen, {}).plan
    else:
        specs = [Path(word) for word in sources or ()]
        _, planned = planning.plan_project(specs, chosen, code)
        checked_values(planned, needs_image=False)
    if output != "text":
        print_document(plan_report.document(planned), output)
        return
    tables = make_console()
    for part in plan_report.tables(planned):
        tables.print(part)
    if explain:
        tables.print(plan_report.reason_table(planned))
