"""The command `plan`, and the speed to expect that its option --expect prints."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hvdchart.cli import options
from hvdchart.cli.terminal import show

if TYPE_CHECKING:
    from hvdchart.plan.model import Plan

# Where the spec does not say how many samples a rank has in a step.
_BATCH = 64


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
        typer.Option(metavar="MODEL", help="Print the speed to expect of this network instead."),
    ] = "",
    speed: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="N", help="For --expect: samples/s of a rank that trains alone."
        ),
    ] = None,
    gbit: Annotated[
        float,
        typer.Option(min=0.001, metavar="N", help="For --expect: Gbit/s of each node's network."),
    ] = 10.0,
) -> None:
    """Print the plan of a spec: groups, ranks, threads, resources, volumes and warnings.

    Examples:
      hvdchart plan run.spec.yaml --explain
      hvdchart plan run.spec.yaml --set nodes.0.count=8 -o json
      hvdchart plan run.spec.yaml --expect resnet50 --speed 350 --gbit 25

    Exit codes: 0 printed; 3 the spec is wrong; 5 a file cannot be read.
    """
    from hvdchart.values import report as plan_report

    _, made = options.plan_specs(specs, files, settings)
    if expect:
        expected = _expectation(made, expect, speed, gbit)
        if output != "table":
            options.print_document(expected, output)
        else:
            _print_expectation(expected)
        return
    if output != "table":
        options.print_document(plan_report.document(made), output)
        return
    tables = options.console()
    for part in plan_report.tables(made):
        tables.print(part)
    if explain:
        tables.print(plan_report.reason_table(made))


def _expectation(plan: "Plan", model: str, speed: float | None, gbit: float) -> dict[str, Any]:
    """The speed on 1, 2, 4 ... of the plan's nodes and on all of them, as JSON data.

    `speed` is in samples/s of a rank that trains alone, `gbit` in Gbit/s of each node's network.
    Raises SpecError for a spec of several groups, and typer.BadParameter for an unknown model or
    without a speed.
    """
    from hvdchart.errors import SpecError
    from hvdchart.plan import expect as model_of

    if model not in model_of.PARAMETERS:
        names = ", ".join(model_of.PARAMETERS)
        raise typer.BadParameter(f"--expect {model!r}: must be one of {names}")
    if speed is None:
        problem = "--expect needs --speed, the samples per second of a rank that trains alone"
        raise typer.BadParameter(problem)
    if len(plan.groups) != 1:
        wanted = "one group: different nodes wait for each other"
        raise SpecError("the spec", "nodes", f"{len(plan.groups)} groups", wanted)
    (group,) = plan.groups
    work = model_of.Work(model, plan.spec.train.batch_size or _BATCH, speed)
    network = model_of.Network(gbit, rdma=group.group.rdma is not None)
    powers = {2**n for n in range(plan.workers.bit_length())}
    expected = []
    for number in sorted(powers | {plan.workers}):
        ranks = number * group.slots
        share = model_of.expect(work, network, number, group.slots)
        expected.append(
            {
                "workers": number,
                "ranks": ranks,
                "imagesPerSecond": round(ranks * speed * share, 1),
                "efficiency": round(share, 4),
            }
        )
    return {"expected": expected, "assumptions": model_of.assumptions(work, network)}


def _print_expectation(expectation: dict[str, Any]) -> None:
    from rich.table import Table

    expected = Table("workers", "ranks", "samples/s", "efficiency", title="expected speed")
    for row in expectation["expected"]:
        cells = (row["workers"], row["ranks"], row["imagesPerSecond"], f"{row['efficiency']:.0%}")
        expected.add_row(*map(str, cells))
    options.console().print(expected)
    show("Assumed:", *(f"- {line}" for line in expectation["assumptions"]))
