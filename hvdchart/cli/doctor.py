"""The command `doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import print_document, print_lines
from hvdchart.errors import ClusterError
from hvdchart.script.options import ScriptRun

if TYPE_CHECKING:
    from hvdchart.doctor.findings import Finding
    from hvdchart.spec.yaml_tree import Plain


@expand_option_groups
def doctor(
    sources: options.RunSources = None,
    code: options.Code = None,
    *,
    script_run: ScriptRun,
    settings: options.Settings = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm_program: options.HelmProgram = "helm",
    prober: Annotated[
        str,
        typer.Option(
            "--probe-policies",
            metavar="IMAGE",
            help="Start two pods of this image, which needs Python 3.8, and a NetworkPolicy for "
            "some seconds, to see whether the cluster enforces it.",
        ),
    ] = "",
    output: options.Format = "text",
) -> None:
    """Check tools, cluster, permissions and capacity, and print a remedy for each problem.

    With a spec or a script, also check whether the namespace would admit its run and has room for
    it. The options from --workers to --name are for a script, as for `run`.

    Examples:
      hvdchart doctor
      hvdchart doctor run.spec.yaml --namespace team
      hvdchart doctor train.py --workers 4 --gpus 8
      hvdchart doctor --probe-policies python:3.12-slim

    Exit codes: 0 no problem was found; 3, 4 the spec is wrong; 5 a file cannot be read; 7
    there are problems.
    """
    import dataclasses

    from hvdchart.doctor.examine import examine_cluster, examine_tools
    from hvdchart.doctor.findings import format_findings
    from hvdchart.quantity import pluralize
    from hvdchart.script.wording import name_options

    script = planning.Script.of_words(sources or (), script_run, code)
    values = _values_of_run(script, sources, settings, code) if sources else None
    findings = [*examine_tools(helm_program), _examine_builders()]
    findings += examine_cluster(context, namespace, values, prober)
    if script:
        findings = [
            dataclasses.replace(
                finding, text=name_options(finding.text), remedy=name_options(finding.remedy)
            )
            for finding in findings
        ]
    if output != "text":
        print_document([dataclasses.asdict(finding) for finding in findings], output)
    else:
        print_lines(*format_findings(findings))
    problems = sum(1 for finding in findings if finding.state == "problem")
    if problems:
        raise ClusterError(f"{pluralize(problems, 'problem')} found")


def _values_of_run(
    script: planning.Script | None,
    sources: list[str],
    settings: list[str] | None,
    code: Path | None,
) -> "dict[str, Plain]":
    """Return the values of the run of a script or of specs, with the chart's defaults."""
    from hvdchart.spec.values_schema import default_values
    from hvdchart.values.check_values import checked_values
    from hvdchart.values.merge import merge_values

    if script:
        plan = script.plan(settings, {}).plan
    else:
        _, plan = planning.plan_project([Path(word) for word in sources], settings, code)
    return merge_values(default_values(), checked_values(plan))


def _examine_builders() -> "Finding":
    """Find the programs that build images: only some runs need one."""
    from hvdchart.doctor.findings import Finding
    from hvdchart.image.engines import ENGINES, working_engines

    engines = working_engines()
    if engines:
        return Finding("image builder", "ok", ", ".join(engines))
    return Finding(
        "image builder",
        "unknown",
        f"none of {', '.join(ENGINES)} works here",
        "install and start one to build images; --code needs none",
    )
