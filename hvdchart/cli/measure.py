"""The commands that measure in pods: `bench` and `tune`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hvdchart.cli import options
from hvdchart.cli.terminal import note, say, show

if TYPE_CHECKING:
    from hvdchart.run.release import Object

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
        help='Measure this command instead, which prints RESULT {"imagesPerSecond": ...}.',
    ),
]


def bench(
    specs: options.Specs = None,
    files: options.Files = None,
    settings: options.Settings = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm: options.Helm = "helm",
    workers: Workers = "",
    turns: Turns = 3,
    model: options.Model = "resnet50",
    batch_size: BatchSize = 32,
    arguments: Arguments = "--warmup 5 --rounds 5 --steps 5",
    command: Command = "",
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
    from hvdchart.bench.run import measure
    from hvdchart.bench.scaling import bench_plan, sizes, turns_of
    from hvdchart.run.helm import Helm as Program

    chosen = options.parse_numbers("workers", workers)
    words = options.split_words("command", command) or [
        *("python", "benchmark.py", "--model", model, "--batch-size", str(batch_size)),
        *options.split_words("arguments", arguments),
    ]
    _, plan = options.plan_specs(specs, files, settings)
    options.print_warnings(plan)
    tried = sizes(plan.workers, chosen)
    trials = turns_of(tried, turns)
    made = bench_plan(plan, trials, words)
    cluster = options.connect(context, namespace)
    say(f"{', '.join(map(str, tried))} workers, {turns} turns, in run {made.spec.name}")
    about = {"name": plan.spec.name, "command": words, "turns": turns}
    about["time"] = datetime.now(UTC).isoformat(timespec="seconds")
    result = {**about, **measure(cluster, made, trials, turns, say, Program(helm, context))}
    if written is not None:
        import json

        options.write_output(written, json.dumps(result, indent=1) + "\n")
    if output != "text":
        options.print_document(result, output)
    else:
        _print_table(result)


def _print_table(result: "Object") -> None:
    from rich.table import Table

    from hvdchart.bench.scaling import place_text

    table = Table(title=f"{result['name']}: {' '.join(result['command'])}")
    for column in ("workers", "ranks", "images/s", "a worker", "efficiency"):
        table.add_column(column, justify="right")
    for row in result["rows"]:
        speed, half = row["imagesPerSecond"], row["interval"]
        table.add_row(
            str(row["workers"]),
            str(row["ranks"]),
            f"{speed:.1f} +- {half:.1f}",
            f"{speed / row['workers']:.1f}",
            f"{row['efficiency']:.1%} +- {row['efficiencyInterval']:.1%}",
        )
    options.console().print(table)
    show(
        f"{place_text(result['nodes'])}; {result['turns']} turns, {result['time']}",
        f"image {result['image']}; +- is the 95 % interval",
    )


def _values(variable: str) -> Any:
    return typer.Option(
        metavar="N,N,...", help=f"Values of {variable} to try (default: derived from the plan)."
    )


def tune(
    specs: options.Specs = None,
    files: options.Files = None,
    settings: options.Settings = None,
    namespace: options.Namespace = None,
    context: options.Context = None,
    helm: options.Helm = "helm",
    output: options.Output = None,
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of workers to measure on.")
    ] = 1,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of runs of each setting.")
    ] = 3,
    confirm: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Number of runs to confirm the two fastest settings."
        ),
    ] = 5,
    intra: Annotated[str, _values("TF_NUM_INTRAOP_THREADS")] = "",
    inter: Annotated[str, _values("TF_NUM_INTEROP_THREADS")] = "",
    omp: Annotated[str, _values("OMP_NUM_THREADS")] = "",
    kmp_blocktime: Annotated[str, _values("KMP_BLOCKTIME")] = "",
    command: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help='Benchmark command that prints RESULT {"imagesPerSecond": ...} '
            "(default: examples/benchmark.py).",
        ),
    ] = "",
    model: options.Model = "resnet50",
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Samples of a rank and step of the benchmark.")
    ] = 16,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Measured steps of the benchmark.")
    ] = 10,
) -> None:
    """Measure thread settings in pods and write the best one as a tuning block.

    The block is a spec file to merge: hvdchart deploy SPEC --file FILE.

    Examples:
      hvdchart tune run.spec.yaml -w tuning.yaml
      hvdchart tune run.spec.yaml --intra 4,8 --inter 1,2 --repeat 5 -w tuning.yaml
      hvdchart tune run.spec.yaml --command "python train.py --benchmark"

    Exit codes: 0 measured; 3, 4 the spec or the values are wrong; 5 the file cannot be written; 6
    Helm failed; 7 the cluster cannot be used; 8 a measurement failed.
    """
    from hvdchart.quantity import pluralize
    from hvdchart.run.helm import Helm as Program
    from hvdchart.tune import grid as tuning
    from hvdchart.tune.run import search

    paths, plan = options.plan_specs(specs, files, settings)
    given = {
        "OMP_NUM_THREADS": options.parse_numbers("omp", omp),
        "TF_NUM_INTRAOP_THREADS": options.parse_numbers("intra", intra),
        "TF_NUM_INTEROP_THREADS": options.parse_numbers("inter", inter),
        "KMP_BLOCKTIME": options.parse_numbers("kmp-blocktime", kmp_blocktime),
    }
    settings_to_try = tuning.list_settings(plan, given)
    words = options.split_words("command", command) or tuning.benchmark_command(
        model, batch_size, steps
    )
    cluster = options.connect(context, namespace)
    note(
        f"{len(settings_to_try)} settings, {pluralize(repeat, 'run')} each, "
        f"on {pluralize(workers, 'worker')}"
    )
    result = search(
        cluster, plan, settings_to_try, words, note, Program(helm, context),
        workers=workers, repeats=repeat, confirmations=confirm,
    )  # fmt: skip
    options.write_output(output, tuning.tuning_text(*result, paths[0].name))
