"""Measures what a second rank costs: python -m tests.bench.bench_scale [--turns 18]

ResNet-50 in the examples' image, on ranks that are bound to a CPU each: one rank; two ranks that
average their gradients, with MPI and with Gloo, with tensor fusion and without; and two ranks that
do not know of each other. CPUs that share a core, memory or power slow each other without any
communication: the last case shows by how much. All of them run all the time and train in turns; the
others are stopped meanwhile. The model of hvdchart/plan/expect.py is then fitted to what was
measured. Needs root, and an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import (
    TWO_RANKS,
    TWO_RANKS_OVER_GLOO,
    Sandbox,
    launch_ranks,
    sandbox,
)
from hvdchart.bench.scaling import mean_and_interval
from hvdchart.plan.expect import HIDDEN, PUBLISHED, Network, Work, expect, fit
from tests.bench import interleaved_training
from tests.bench.report import as_line, as_share, origin, verdict, write_part, write_result
from tests.bench.turns import in_turns

GOAL = 0.97
NETWORK, BATCH, SIZE = "resnet50", 4, 160
ONE, APART, BASE = "one rank", "two ranks without allreduce", "MPI"
NO_FUSION = {"HOROVOD_FUSION_THRESHOLD": "0"}
# Gloo's own 30 s would be over when ranks go on that were stopped.
GLOO = (*TWO_RANKS_OVER_GLOO, "--gloo-timeout-seconds", "3600")
# The launcher's command line, and further variables.
Launch = tuple[tuple[str, ...], dict[str, str]]
PAIRS: dict[str, Launch] = {
    BASE: (TWO_RANKS, {}),
    "MPI, no fusion": (TWO_RANKS, NO_FUSION),
    "Gloo": (GLOO, {}),
    "Gloo, no fusion": (GLOO, NO_FUSION),
}


@dataclass
class Measured:
    """What was measured, a figure for each turn.

    speeds: images/s of all ranks together, by case. reduced: the seconds in which a pair averages
    tensors like the gradients and does nothing else. tensors: how many there are.
    """

    speeds: dict[str, list[float]] = field(default_factory=dict)
    reduced: dict[str, list[float]] = field(default_factory=dict)
    tensors: int = 0

    def efficiency(self, case: str, base: str) -> list[float]:
        """The speed of a rank as a share of a rank's speed in another case, turn by turn."""
        ours, theirs = self.speeds[case], self.speeds[base]
        ranks = 1 if base == ONE else 2
        return [own / 2 / (other / ranks) for own, other in zip(ours, theirs, strict=True)]

    def seconds(self, case: str) -> float:
        """The mean duration of a step in seconds."""
        return statistics.fmean(2 * BATCH / speed for speed in self.speeds[case])


@dataclass(frozen=True)
class Fitted:
    """The model's parameters as they were measured: bytes/s of an allreduce of all gradients,
    seconds for each message more, and the factor that the communication's time is multiplied with.
    """

    work: Work
    bytes_per_second: float
    message: float
    scale: float

    @property
    def exposed(self) -> float:
        """The share of the communication that a step waits for."""
        return (1 - HIDDEN) * self.scale


def fit_model(measured: Measured, case: str = BASE) -> Fitted:
    """The parameters of two ranks, each of which computes as fast as it does beside another."""
    work = Work(NETWORK, BATCH, BATCH / measured.seconds(APART))
    fused = statistics.median(measured.reduced[case])
    single = statistics.median(measured.reduced[f"{case}, no fusion"])
    speed = work.gradients / fused
    # Memory is not a stream of TCP, to which the model sets a limit.
    link = Network(gbit=speed * 8 / 1e9, rdma=True)
    scale = fit(work, link, [(2, 2, 2 * BATCH / measured.seconds(case))])
    return Fitted(work, speed, (single - fused) / measured.tensors, scale)


def expectations(fitted: Fitted) -> Iterator[tuple[str, str, int, float, float, float]]:
    """Published figures of 16 nodes with 10 Gbit/s and of 128 GPUs: what was reached, what the
    model says as it is, and with the factor that was fitted.
    """
    for each in PUBLISHED:
        ranks = each.hosts * each.ranks_per_host
        if (each.hosts, each.network.gbit) != (16, 10) and ranks != 128:
            continue
        network = replace(each.network, scale=fitted.scale)
        ours = expect(each.work, network, each.hosts, each.ranks_per_host).efficiency
        yield each.where, each.work.model, ranks, each.efficiency, each.expected(), ours


def measured_table(measured: Measured) -> str:
    """Speeds, efficiencies and times as a table of Markdown."""
    lines = [
        "| ResNet-50 | images/s | Efficiency | Beside one rank alone | A step is longer by "
        f"| Allreduce alone | Goal: at least {GOAL:.0%} |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, speeds in measured.speeds.items():
        mean, half = mean_and_interval(speeds)
        cells = [case, f"{mean:.2f} ± {half:.2f}", *[""] * 5]
        if case != ONE:
            cells[3] = as_share(measured.efficiency(case, ONE))
        if case in PAIRS:
            shares = measured.efficiency(case, APART)
            longer = measured.seconds(case) - measured.seconds(APART)
            alone = statistics.median(measured.reduced[case])
            cells[2], cells[4] = as_share(shares), f"{1000 * longer:.0f} ms"
            cells[5:] = [f"{1000 * alone:.0f} ms", verdict(shares, GOAL)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def fitted_text(fitted: Fitted) -> str:
    """The parameters, and what the model says with them beside published figures."""
    # Below 0, fusion gained less than the figures vary.
    message = f"{1e6 * fitted.message:.0f} µs" if fitted.message > 0 else "no measurable time"
    lines = [
        f"Fitted to {BASE}: a step of {fitted.work.seconds:.2f} s without communication, "
        f"{fitted.work.gradients / 1e6:.0f} MB of gradients at "
        f"{fitted.bytes_per_second / 1e9:.2f} GB/s, and {message} for each "
        f"additional message. A step is longer by {fitted.exposed:.0%} of the time that the "
        f"allreduce takes alone; the model assumes {1 - HIDDEN:.0%}. In the last column, its times "
        f"of communication are therefore multiplied by {fitted.scale:.2f}.",
        "",
        "| Published | Network | Ranks | Reached | Model | Model as fitted here |",
        "|---|---|---|---|---|---|",
    ]
    for where, model, ranks, *shares in expectations(fitted):
        lines.append(f"| {where} | {model} | {ranks} | {' | '.join(f'{s:.0%}' for s in shares)} |")
    return "\n".join(lines)


@contextmanager
def everyone(inside: Sandbox) -> Iterator[interleaved_training.Parties]:
    """The ranks of all parties, ready, alike and bound to a CPU each."""
    with ExitStack() as stack:
        processes: list[tuple[str, subprocess.Popen[str]]] = []

        def check() -> None:
            for party, process in processes:
                if process.poll() is not None:
                    raise SystemExit(f"{party}: the training ended with {process.returncode}")

        meeting = stack.enter_context(interleaved_training.meeting(inside.folder))
        single: Launch = (launch_ranks(1), {})
        for party, (launch, more) in [(APART, single), (APART, single), *PAIRS.items()]:
            words = (*launch, *interleaved_training.command(party, {NETWORK: (BATCH, SIZE)}))
            process = inside.start(*words, **interleaved_training.ENVIRONMENT, **more)
            processes.append((party, process))
        # They end when their connections do.
        for _, process in processes:
            stack.callback(process.wait, 60)
        stack.callback(meeting.close)
        parties = meeting.wait_for({APART: 2, **dict.fromkeys(PAIRS, 2)}, check)
        interleaved_training.refuse_unless_alike(parties)
        interleaved_training.pin(parties)
        yield parties


def measure(parties: interleaved_training.Parties, turns: int) -> Measured:
    """Let all cases train in turns."""
    cases = [ONE, APART, *PAIRS]
    measured = Measured({case: [] for case in cases}, {pair: [] for pair in PAIRS})
    for number, case in enumerate(in_turns(cases, turns), 1):
        ranks = parties[APART][:1] if case == ONE else parties[case]
        answers = interleaved_training.ask(ranks, do="train", network=NETWORK, steps=1)
        seconds = [answer["seconds"] for answer in answers]
        if case in PAIRS:
            # They have waited for each other.
            seconds = [max(seconds)] * len(seconds)
            alone = interleaved_training.ask(ranks, do="reduce", network=NETWORK, times=1)
            measured.reduced[case].append(max(answer["seconds"] for answer in alone))
            measured.tensors = alone[0]["tensors"]
        measured.speeds[case].append(sum(BATCH / each for each in seconds))
        if number % len(cases) == 0:
            shown = ", ".join(f"{speeds[-1]:.2f}" for speeds in measured.speeds.values())
            print(f"turn {number // len(cases)}: {shown} images/s", flush=True)
    return measured


def report(measured: Measured, turns: int) -> None:
    """Print the tables, and write them to the page and a file for programs."""
    where = origin(turns)
    document = {"speeds": measured.speeds, "reduced": measured.reduced, "tensors": measured.tensors}
    write_result("bench-scale", {**where, **document})
    beside = as_share(measured.efficiency(APART, ONE))
    parts = [
        as_line(where),
        f"Batches of {BATCH} images of {SIZE} x {SIZE}, one step a turn.",
        measured_table(measured),
        f"Two ranks that do not communicate each have {beside} of the speed of a rank that runs "
        "alone: this loss is due to the machine, and not to Horovod.",
        fitted_text(fit_model(measured)),
    ]
    print("\n\n".join(parts))
    write_part("scaling.md", "bench-scale", "\n\n".join(parts))


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=18)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hvd-bench-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        shutil.copy(interleaved_training.SCRIPT, inside.folder)
        with everyone(inside) as parties:
            measured = measure(parties, options.turns)
    report(measured, options.turns)


if __name__ == "__main__":
    main()
