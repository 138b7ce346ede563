"""Measures what a second rank of a machine costs: python -m tests.bench.bench_scale [--turns 18]

ResNet-50 in the examples' image on two ranks that are bound to a CPU each: with MPI and with Gloo,
with the variables that the chart sets for them, and without averaging. CPUs that share a core,
memory or power slow each other without any communication: the last case shows by how much. All of
them run all the time and make one step in turns; the others are stopped meanwhile. Then the same
with gradients alone: how much longer a step takes that averages them, beside the time that the
machine's memory takes at least. Needs root, Buildah and an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from devtools.docs_gen.generated import table
from hvd_pods.rank.fusion import BY_RANKS, choose
from hvd_pods.shared.threads import plan_cycle
from tests.bench import interleaved_training
from tests.bench.report import as_share, publish, verdict
from tests.support.in_image.sandbox import TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox, launch_ranks

NETWORK = "resnet50"
BATCH = 4
SIZE = 160
APART = "without averaging"
GOALS = {"MPI": 0.97, "Gloo": 0.93}
# One large tensor, and a layer of a small BERT.
LARGE = 25_600_000
LAYER = [768 * 768] * 4 + [768 * 3072] * 2 + [3072] + [768] * 9
GRADIENTS: dict[str, Sequence[object]] = {
    "one of 102 MB": ("float32", LARGE),
    "as many numbers, bfloat16": ("bfloat16", LARGE),
    "a BERT with 4 layers": ("float32", 30_522 * 128, *(LAYER * 4)),
    "an LSTM": ("float32", 10_000 * 128, 128 * 2048, 512 * 2048, 2048, 512 * 10_000, 10_000),
    "200 of 100 numbers": ("float32", *[100] * 200),
}
MEMORY = "memory"
GOALS_MS = {"one of 102 MB": 30, "as many numbers, bfloat16": 18}
WANTED = {NETWORK: (BATCH, SIZE), **GRADIENTS, MEMORY: LARGE}
# Gloo's own 30 s would be over when ranks go on that were stopped.
GLOO = (*TWO_RANKS_OVER_GLOO, "--gloo-timeout-seconds", "3600")
# The launchers' command lines and the variables of the chart.
LAUNCHES = {"MPI": (TWO_RANKS, choose(2, {BY_RANKS: "1"})), "Gloo": (GLOO, plan_cycle(1))}


@contextmanager
def everyone(inside: Sandbox) -> Iterator[interleaved_training.Parties]:
    """The ranks of all cases, ready, alike and bound to a CPU each."""
    with ExitStack() as stack:
        rendezvous = stack.enter_context(closing(interleaved_training.Rendezvous(inside.folder)))
        processes: list[tuple[str, subprocess.Popen[str]]] = []

        def check() -> None:
            for case, process in processes:
                if process.poll() is not None:
                    raise SystemExit(f"{case}: the training ended with {process.returncode}")

        single: tuple[tuple[str, ...], dict[str, str]] = (launch_ranks(1), {})
        for case, (launch, chosen) in [(APART, single), (APART, single), *LAUNCHES.items()]:
            words = interleaved_training.command(case, WANTED)
            variables = {**interleaved_training.ENVIRONMENT, **chosen}
            processes.append((case, inside.start(*launch, *words, **variables)))
        # They end when their connections do.
        for _, process in processes:
            stack.callback(process.wait, 60)
        stack.callback(rendezvous.close)
        yield rendezvous.wait_for({APART: 2, **dict.fromkeys(LAUNCHES, 2)}, check)


def scale_table(seconds: Mapping[str, Sequence[float]]) -> str:
    rows = []
    for case, each in seconds.items():
        speed = f"{2 * BATCH * len(each) / sum(each):.2f}"
        if case in GOALS:
            # The speed as a share of that without averaging, turn by turn.
            shares = [apart / own for apart, own in zip(seconds[APART], each, strict=True)]
            goal = f"{GOALS[case]:.0%}: {verdict(shares, GOALS[case])}"
            rows.append((case, speed, as_share(shares), goal))
        else:
            rows.append((case, speed, "", ""))
    return table(("Two ranks", "images/s", "Efficiency", "Goal"), rows)


def gradients_table(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """By how many milliseconds a step is longer that averages gradients, as a table of Markdown."""
    rows: list[tuple[str, ...]] = []
    for name in GRADIENTS:
        cells = []
        for case in LAUNCHES:
            pairs = zip(seconds[name][case], seconds[name][APART], strict=True)
            cells.append(f"{1000 * statistics.median(own - apart for own, apart in pairs):.1f}")
        rows.append((name, *cells, f"{GOALS_MS[name]}" if name in GOALS_MS else ""))
    memory = f"{1000 * statistics.median(seconds[MEMORY][APART]):.1f}"
    rows.append(("102 MB added and copied in memory, by both ranks at once", memory, memory, ""))
    return table(("Gradients: a step is longer by, ms", *LAUNCHES, "Goal"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=18)
    options = parser.parse_args()
    with interleaved_training.examples() as inside, everyone(inside) as parties:
        seconds = {
            name: interleaved_training.take_turns(parties, name, options.turns) for name in WANTED
        }
    text = f"{scale_table(seconds[NETWORK])}\n\n{gradients_table(seconds)}"
    publish("bench-scale", "performance.md", options.turns, seconds, text)


if __name__ == "__main__":
    main()
