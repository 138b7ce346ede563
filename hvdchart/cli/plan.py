"""The command `plan`, and the speed to expect that its option --expect prints."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hvdchart.cli.options import (
    Files,
    Settings,
    Specs,
    check_format,
    console,
    plan_specs,
    print_document,
)
from hvdchart.cli.terminal import show
from hvdchart.errors import FileError

if TYPE_CHECKING:
    from hvdchart.plan.expect import Network, Work
    from hvdchart.plan.model import Plan

EPILOG = """\b
Examples:
  hvdchart plan run.spec.yaml --explain
  hvdchart plan run.spec.yaml --set nodes.0.count=8 -o json
  hvdchart plan run.spec.yaml --expect resnet50 --speed 350 --gbit 25

Exit codes: 0 printed; 3 the spec is wrong; 5 a file cannot be read."""


# Where neither the spec nor a measurement says how many samples a rank has in a step.
_BATCH = 64


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
        expected = _expectation(made, expect, speed, gbit, measured)
        if output != "table":
            print_document(expected, output)
        else:
            _print_expectation(expected)
        return
    if output != "table":
        print_document(plan_report.document(made), output)
        return
    tables = console()
    for part in plan_report.tables(made):
        tables.print(part)
    if explain:
        tables.print(plan_report.reason_table(made))


def _expectation(
    plan: "Plan", model: str, speed: float | None, gbit: float, measured: Path | None
) -> dict[str, Any]:
    """The speed on 1, 2, 4 ... of the plan's nodes, as JSON data; raises SpecError, FileError."""
    from hvdchart.errors import SpecError
    from hvdchart.plan import expect as model_of

    if model not in model_of.PARAMETERS:
        names = ", ".join(model_of.PARAMETERS)
        raise typer.BadParameter(f"--expect {model!r}: must be one of {names}")
    if (speed is None) == (measured is None):
        raise typer.BadParameter(
            "--expect needs either --speed, the samples per second of a rank that trains alone, or "
            "--measured, a result of `hvdchart bench -w`"
        )
    if len(plan.groups) != 1:
        expected = "one group: different nodes wait for each other"
        raise SpecError("the spec", "nodes", f"{len(plan.groups)} groups", expected)
    (group,) = plan.groups
    batch = plan.spec.train.batch_size or _BATCH
    network = model_of.Network(gbit, rdma=group.group.rdma is not None)
    if measured is None:
        work = model_of.Work(model, batch, speed or 0.0)
    else:
        work, network = _fitted(model, batch, network, measured)
    hosts = sorted({*(2**n for n in range(plan.workers.bit_length())), plan.workers})
    made = [model_of.expect(work, network, number, group.slots) for number in hosts]
    return {
        "expected": [
            {
                "workers": each.hosts,
                "ranks": each.ranks,
                "imagesPerSecond": round(each.speed, 1),
                "efficiency": round(each.efficiency, 4),
            }
            for each in made
        ],
        "assumptions": model_of.assumptions(work, network),
        "published": [
            {
                "where": each.where,
                "model": each.work.model,
                "ranks": each.hosts * each.ranks_per_host,
                "published": each.efficiency,
                "model expects": round(each.expected(), 4),
            }
            for each in model_of.PUBLISHED
        ],
    }


def _print_expectation(expectation: dict[str, Any]) -> None:
    from rich.table import Table

    expected = Table("workers", "ranks", "samples/s", "efficiency", title="expected speed")
    for row in expectation["expected"]:
        cells = (row["workers"], row["ranks"], row["imagesPerSecond"], f"{row['efficiency']:.0%}")
        expected.add_row(*map(str, cells))
    published = Table("published", "network", "ranks", "reached", "model", title="published")
    for row in expectation["published"]:
        shares = (f"{row[key]:.0%}" for key in ("published", "model expects"))
        published.add_row(row["where"], row["model"], str(row["ranks"]), *shares)
    console().print(expected)
    show("Assumed:", *(f"- {line}" for line in expectation["assumptions"]))
    console().print(published)


def _fitted(model: str, batch: int, network: "Network", measured: Path) -> "tuple[Work, Network]":
    """The work and the network with what a result of `bench` says of them."""
    from dataclasses import replace

    from hvdchart.bench.result import read_document
    from hvdchart.plan.expect import Work, fit

    result = read_document(measured)
    words = [str(word) for word in result.get("command", [])]
    given = dict(itertools.pairwise(words))
    if given.get("--model", model) != model:
        raise FileError(f"{measured}: was measured with {given['--model']}, and not with {model}")
    if given.get("--batch-size", "").isdecimal():
        batch = int(given["--batch-size"])
    first = result["rows"][0]
    work = Work(model, batch, first["imagesPerSecond"] / first["ranks"])
    if len(set(result["nodes"].values())) < len(result["nodes"]):
        # Workers on one node have no network between them.
        return work, network
    rows = [(row["workers"], row["ranks"], row["imagesPerSecond"]) for row in result["rows"]]
    return work, replace(network, scale=fit(work, network, rows))
