"""The subcommand `tune`: parsing and printing, no logic."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from hvdchart.cli.options import Files, Settings, Specs, planned
from hvdchart.cli.run import Context, Helm, Namespace

Numbers = Annotated[str, typer.Option(metavar="N,N,...", help="Values to try; planned ones else.")]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command()(tune)


def tune(
    specs: Specs = None,
    files: Files = None,
    settings: Settings = None,
    namespace: Namespace = None,
    context: Context = None,
    helm: Helm = "helm",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Workers to measure on.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each setting.")] = 3,
    confirm: Annotated[
        int, typer.Option(min=1, help="Runs once more of the two best that beat the plan.")
    ] = 5,
    intra: Numbers = "",
    inter: Numbers = "",
    omp: Numbers = "",
    kmp_blocktime: Numbers = "",
    command: Annotated[
        str, typer.Option(help='A command of yours that prints RESULT {"imagesPerSecond": ...}.')
    ] = "",
    model: Annotated[str, typer.Option(help="Of the built-in benchmark: a Keras model.")] = (
        "ResNet50"
    ),
    batch_size: Annotated[int, typer.Option(min=1, help="Of the built-in benchmark.")] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Of the built-in benchmark.")] = 10,
) -> None:
    """Measure thread settings in the cluster's pods and write the best as a `tuning:` block.

    The block is an overlay: `hvdchart deploy SPEC -f FILE`.
    """
    from hvdchart.files import write_atomically
    from hvdchart.run.cluster import Cluster
    from hvdchart.tune import grid as tuning
    from hvdchart.tune.run import Bench, search

    paths, plan = planned(specs, files, settings)
    grid = tuning.Grid(
        _numbers("omp", omp), _numbers("intra", intra), _numbers("inter", inter),
        _numbers("kmp-blocktime", kmp_blocktime),
    )  # fmt: skip
    tries = tuning.settings_of(plan, grid)
    words = shlex.split(command) or tuning.benchmark_command(model, batch_size, steps)
    cluster = Cluster.connect(context, namespace)
    sys.stderr.write(f"{len(tries)} settings, {repeat} runs each, on {workers} workers\n")
    bench = Bench(plan, words, workers, repeat, confirm)
    found = search(cluster, bench, tries, _tell, context=context, helm=helm)
    text = tuning.tuning_text(found, paths[0].name)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _numbers(option: str, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() and len(word) < 7 for word in words):
        raise typer.BadParameter(f"--{option} {text!r}: whole numbers with commas between")
    return tuple(int(word) for word in words)
