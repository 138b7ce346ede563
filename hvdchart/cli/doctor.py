"""The command `doctor`."""

from typing import Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.terminal import print_document, show
from hvdchart.errors import ClusterError


def doctor(
    specs: options.SpecsOrScript = None,
    files: options.Files = None,
    settings: options.Settings = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm: options.Helm = "helm",
    is_builder_needed: Annotated[
        bool, typer.Option("--builder", help="Count a missing image builder as a problem.")
    ] = False,
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

    With SPEC, also check whether the namespace would admit its run and has room for it.

    Examples:
      hvdchart doctor
      hvdchart doctor run.spec.yaml --namespace team
      hvdchart doctor --probe-policies python:3.12-slim

    Exit codes: 0 no problem was found; 3, 4 the spec is wrong; 7 there are problems.
    """
    import dataclasses

    from hvdchart.doctor.examine import examine_cluster, examine_tools
    from hvdchart.doctor.findings import Finding, report
    from hvdchart.image.engines import ENGINES, working_engines
    from hvdchart.quantity import pluralize
    from hvdchart.run.interrupts import interrupting_signals

    values = None
    if specs or files:
        from hvdchart.values.check import checked_values
        from hvdchart.values.merge import merge_values
        from hvdchart.values.schema import default_values

        _, plan = planning.plan_specs(specs, files, settings)
        values = merge_values(default_values(), checked_values(plan))
    engines = working_engines()
    if engines:
        builder = Finding("image builder", "ok", ", ".join(engines))
    else:
        builder = Finding(
            "image builder",
            "problem" if is_builder_needed else "unknown",
            f"none of {', '.join(ENGINES)} works here",
            "install and start one to build images; --code needs none",
        )
    findings = [*examine_tools(helm), builder]
    with interrupting_signals():
        findings += examine_cluster(context, namespace, values, prober)
    if output != "text":
        print_document([dataclasses.asdict(finding) for finding in findings], output)
    else:
        show(*report(findings))
    problems = sum(1 for finding in findings if finding.state == "problem")
    if problems:
        raise ClusterError(f"{pluralize(problems, 'problem')} found")
