"""The command `tune`."""

from typing import Annotated, Any

import typer

from hvdchart.cli import options
from hvdchart.cli.terminal import note


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
        cluster,
        plan,
        settings_to_try,
        words,
        note,
        Program(helm, context),
        workers=workers,
        repeats=repeat,
        confirmations=confirm,
    )
    options.write_output(output, tuning.tuning_text(*result, paths[0].name))
