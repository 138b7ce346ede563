"""The command `render`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import make_console, print_notes, write_output
from hvdchart.errors import DifferenceError
from hvdchart.script.options import ScriptRun


@dataclass(frozen=True)
class ManifestOptions:
    """The options to render manifests instead of values."""

    manifests: Annotated[
        bool, typer.Option("--manifests", help="Print the manifests that Helm would apply.")
    ] = False
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            callback=options.check_namespace,
            metavar="NAMESPACE",
            help="Namespace for --manifests.",
        ),
    ] = "default"
    helm_program: Annotated[
        str, typer.Option("--helm", metavar="PROGRAM", help="Helm program for --manifests.")
    ] = "helm"


@expand_option_groups
def render(
    sources: options.RunSources = None,
    settings: options.Settings = None,
    code: options.Code = None,
    *,
    script_run: ScriptRun,
    output: options.Output = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with --write; exit 1 if it differs.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the reason for each number to standard error.")
    ] = False,
    manifest_options: ManifestOptions,
) -> None:
    """Render the chart's values for a spec.

    A folder is a project: its spec and its code, as for deploy. Its spec file alone has no code.
    The options from --workers to --name are for a script, as for `run`.

    Examples:
      hvdchart render run.spec.yaml -w values.yaml
      hvdchart render run.spec.yaml -w values.yaml --check
      hvdchart render train.py --workers 4 -w values.yaml
      hvdchart render run.spec.yaml --code . | helm upgrade --install run charts/horovod -f -

    Exit codes: 0 rendered; 1 --check found a difference; 3, 4 the spec or the values are wrong; 5
    a file cannot be read or written; 6 Helm failed.
    """
    from hvdchart.files import file_difference
    from hvdchart.values.render import render_values

    if check and output is None:
        raise typer.BadParameter("--check needs --write: the file to compare with")
    script = planning.Script.of_words(sources or (), script_run, code)
    if script:
        paths = [script.path]
        plan = script.plan(settings, {}).plan
    else:
        specs = [Path(word) for word in sources or ()]
        paths, plan = planning.plan_project(specs, settings, code)
    if not check:
        options.keep_inputs([output], paths)
    planning.print_warnings(plan)
    if manifest_options.manifests:
        from hvdchart.run.helm import render_manifests

        text = render_manifests(plan, manifest_options.namespace, manifest_options.helm_program)
    else:
        text = render_values(plan, " ".join(path.name for path in paths))
    if explain:
        from hvdchart.values.plan_text import reason_table

        make_console(stderr=True).print(reason_table(plan))
    if output is not None and check:
        changes = file_difference(output, text)
        if changes:
            print_notes(*changes.splitlines())
            raise DifferenceError(
                f"{output} differs from what the spec renders; run without --check to update it"
            )
    else:
        write_output(output, text)
