"""The command `bench`."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hvdchart.cli import options, planning
from hvdchart.cli.option_groups import expand_option_groups
from hvdchart.cli.terminal import (
    make_console,
    print_document,
    print_lines,
    print_remark,
    write_output,
)

if TYPE_CHECKING:
    from hvdchart.run.state.release import Object

Workers = Annotated[
    str,
    typer.Option(
        metavar="N,N,...", help="Numbers of workers to measure (default: 1, 2, 4 ... and all)."
    ),
]
Turns = Annotated[
    int, typer.Option(min=2, metavar="N", help="How often each number of workers is measured.")
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", help="Samples per rank and step.")]
Arguments = Annotated[
    str, typer.Option(metavar="WORDS", help="Further arguments of examples/benchmark.py.")
]
Command = Annotated[
    str,
    typer.Option(
        metavar="COMMAND",
        help='Measure this command instead, which prints RESULT {"samplesPerSecond": ...}.',
    ),
]


@dataclass(frozen=True)
class MeasureOptions:
    """The options that say what is measured."""

    workers: Workers = ""
    turns: Turns = 3
    model: options.Model = "resnet50"
    batch_size: BatchSize = 32
    arguments: Arguments = "--warmup 5 --rounds 5 --steps 5"
    command: Command = ""

    def command_words(self) -> list[str]:
        """Return the command to measure. Raises typer.BadParameter for an open quote."""
        words = options.split_words("command", self.command)
        if words:
            return words
        benchmark = ["python", "benchmark.py", "--model", self.model]
        benchmark += ["--batch-size", str(self.batch_size)]
        return benchmark + options.split_words("arguments", self.arguments)


@expand_option_groups
def bench(
    specs: options.Specs = None,
    settings: options.Settings = None,
    *,
    helm_options: options.HelmOptions,
    measured: MeasureOptions,
    written: options.Output = None,
    output: options.Format = "text",
) -> None:
    """Measure how the speed grows with the number of workers, on your nodes.

    All numbers of workers are measured in turns in one temporary run, with the same image and on
    the same pods.

    Examples:
      hvdchart bench run.spec.yaml
      hvdchart bench run.spec.yaml --workers 1,2,4,8 --model inception3 --batch-size 64 -w i3.json
      hvdchart bench run.spec.yaml --arguments "--dtype bfloat16"

    Exit codes: 0 measured; 3, 4 the spec or the values are wrong; 5 the file cannot be written; 6
    Helm failed; 7 the cluster cannot be used; 8 a measurement failed.
    """
    from hvdchart.bench.measure import measure_trials
    from hvdchart.bench.scaling import bench_plan, choose_sizes, turns_of

    planning.refuse_script(specs)
    chosen = options.parse_numbers("workers", measured.workers)
    words = measured.command_words()
    turns = measured.turns
    _, plan = planning.plan_specs(specs, settings)
    planning.print_warnings(plan)
    tried = choose_sizes(plan.workers, chosen)
    trials = turns_of(tried, turns)
    benchmark = bench_plan(plan, trials, words)
    cluster, helm = helm_options.connect()
    target = f"{benchmark.spec.name} --namespace {cluster.namespace}"
    print_remark(
        f"{', '.join(map(str, tried))} workers, {turns} turns, in run {benchmark.spec.name}; its "
        f"output until it is uninstalled: hvdchart logs {target}"
    )
    result = {
        "name": plan.spec.name,
        "command": words,
        "turns": turns,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    result |= measure_trials(cluster, benchmark, trials, turns, print_remark, helm)
    # Printed first: the file may be one that cannot be written.
    if output != "text":
        print_document(result, output)
    else:
        _print_table(result)
    if written is not None:
        import json

        write_output(written, json.dumps(result, indent=1) + "\n")


def _print_table(result: "Object") -> None:
    from rich.table import Table

    from hvdchart.bench.scaling import place_text

    table = Table(title=f"{result['name']}: {' '.join(result['command'])}")
    for column in ("workers", "ranks", "samples/s", "a worker", "efficiency"):
        table.add_column(column, justify="right")
    for row in result["rows"]:
        speed = row["samplesPerSecond"]
        half = row["interval"]
        table.add_row(
            str(row["workers"]),
            str(row["ranks"]),
            f"{speed:.1f} +- {half:.1f}",
            f"{speed / row['workers']:.1f}",
            f"{row['efficiency']:.1%} +- {row['efficiencyInterval']:.1%}",
        )
    make_console().print(table)
    print_lines(
        f"{place_text(result['nodes'])}; {result['turns']} turns, {result['time']}",
        f"image {result['image']}; +- is the 95 % interval",
    )
