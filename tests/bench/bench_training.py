"""Measures how fast trainings are: python -m tests.bench.bench_training [--only images,ranks,pods]

Compares trainings that differ in one thing. They take turns: each runs to its end, alone on this
machine, and prints its speed as `hvdchart bench` reads it. A share compares two speeds of one turn.

- images: MobileNetV2 on one rank and two, on one batch that stays in memory, and on the same JPEG
  images as a first script reads them, and with examples/pipeline.py
- ranks: ResNet-50 on two ranks, with MPI and with Gloo, with the variables that the chart sets for
  them, and without averaging: CPUs that share a core, memory or power slow each other without any
  communication
- pods: in pods and on the host, in the root file system of the same image (chroot), as ordinary
  processes of the same user

tests/e2e/test_equal.py tests that pods and host come to the same weights. Needs root, Buildah and
an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from devtools.docs_gen.generated import markdown_table
from hvd_pods.rank.fusion import BY_RANKS, choose
from hvd_pods.shared.thread_counts import YIELD, plan_cycle
from images.builder.build import build_image
from tests.bench import contestants
from tests.bench.report import as_share, judge_figures, publish_figures
from tests.support.in_image.sandbox import (
    OWN_UID,
    TWO_RANKS,
    TWO_RANKS_OVER_GLOO,
    RuncSandbox,
    Sandbox,
    launch_ranks,
    sandbox,
)

IMAGE_RANKS = Path(__file__).with_name("image_ranks.py")
SOURCES = ("synthetic", "naive", "pipeline.py, no cache", "pipeline.py")
NUMBERS = {1: "one rank", 2: "two ranks"}
# A network with the batch size of a rank and the size of the images: a step takes half a second.
NETWORKS = {"ResNet-50": ("resnet50", 4, 112), "Inception-v3": ("inception3", 4, 160)}
STEPS = ("--warmup", "5", "--rounds", "5", "--steps", "5")
# A thread for each rank. With pages of 4 KiB, one process was up to 18 % faster or slower than the
# next one like it.
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"),
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    YIELD: "1",
}
# The transports that the chart sets.
TRANSPORTS = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib,ofi,uct,usnic"}
# The filter of containerd 1.6, which the local cluster has, denies process_vm_readv(2): ranks of
# one worker then copy each tensor twice, and an allreduce takes a quarter longer. Those of
# containerd from 1.7 on and of Docker allow it.
UNFILTERED = {"type": "Unconfined"}
# In a mount namespace of its own, so that nothing stays mounted.
ON_HOST = """
set -e
root=$1 user=$2; shift 2
for name in proc sys dev; do mount --rbind /$name "$root/$name"; done
mount -t tmpfs tmpfs "$root/tmp"
exec chroot --userspec="$user" "$root" "$@"
"""


@dataclass(frozen=True)
class Comparison:
    """Trainings, which return their samples/s, by name; each is compared with the first one.

    goals: the share of the first one's speed that some of them should have.
    """

    title: str
    trainings: Mapping[str, Callable[[], float]]
    goals: Mapping[str, float] = field(default_factory=dict)

    def measure(self, turns: int) -> dict[str, list[float]]:
        """Let each train in each turn; the samples/s by name."""
        speeds: dict[str, list[float]] = {name: [] for name in self.trainings}
        for name in contestants.in_turns([*speeds], turns):
            speeds[name].append(self.trainings[name]())
            print(f"{self.title}, {name}: {speeds[name][-1]:.2f} images/s", flush=True)
        return speeds

    def rows(self, speeds: Mapping[str, list[float]]) -> Iterator[tuple[str, ...]]:
        base, *_ = speeds.values()
        for name, own_speeds in speeds.items():
            shares = [speed / first for first, speed in zip(base, own_speeds, strict=True)]
            goal = self.goals.get(name)
            yield (
                f"{self.title}, {name}",
                f"{statistics.fmean(own_speeds):.2f}",
                "" if own_speeds is base else as_share(shares),
                f"{goal:.1%}: {judge_figures(shares, goal)}" if goal else "",
            )


def read_speed(output: str) -> float:
    """The samples/s in the last result of an output. Ends the program if there is none."""
    results = re.findall(r"RESULT (\{.*\})", output)
    if not results:
        sys.exit(f"the training printed no result: {output[-3000:]}")
    return float(json.loads(results[-1])["samplesPerSecond"])


def assign(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


def benchmark(network: str, batch: int, size: int) -> list[str]:
    options = ["--model", network, "--batch-size", str(batch), "--image-size", str(size)]
    return ["python3", "/examples/benchmark.py", *options, *STEPS]


def compare_images(inside: Sandbox, _stack: ExitStack) -> Iterator[Comparison]:
    shutil.copy(IMAGE_RANKS, inside.folder)
    command = ("python3", f"/output/{IMAGE_RANKS.name}")
    variables = {**ENVIRONMENT, "PYTHONPATH": "/examples"}

    def train(source: str, ranks: int) -> float:
        words = (*launch_ranks(ranks), *command, source, "/output/images")
        return read_speed(inside.succeed("env", *assign(variables), *words))

    for number, title in NUMBERS.items():
        trainings = {source: partial(train, source, number) for source in SOURCES}
        yield Comparison(title, trainings, {SOURCES[-1]: 0.98})


def compare_ranks(inside: Sandbox, _stack: ExitStack) -> Iterator[Comparison]:
    command = benchmark("resnet50", 4, 160)

    def train(launch: Sequence[str], variables: Mapping[str, str]) -> float:
        pairs = assign({**ENVIRONMENT, **variables})
        return read_speed(inside.succeed("env", *pairs, *launch, *command))

    def train_apart() -> float:
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(lambda _: train(launch_ranks(1), {}), range(2)))

    trainings: dict[str, Callable[[], float]] = {
        "without averaging": train_apart,
        "MPI": partial(train, TWO_RANKS, choose(2, {BY_RANKS: "1"})),
        "Gloo": partial(train, TWO_RANKS_OVER_GLOO, plan_cycle(1)),
    }
    yield Comparison("two ranks", trainings, {"MPI": 0.97, "Gloo": 0.93})


def compare_pods(inside: Sandbox, stack: ExitStack) -> Iterator[Comparison]:
    if not isinstance(inside, RuncSandbox):
        sys.exit(f"{inside.image.engine.program} does not mount images: use Buildah")
    namespace = stack.enter_context(contestants.bench_namespace("examples", {}))
    for title, network in NETWORKS.items():
        command = benchmark(*network)
        for number, of_ranks in NUMBERS.items():
            env = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
            values = {
                "worker": {"number": 1, "slots": number, "env": env},
                "cleanup": "Never",
                "podSecurityContext": {"seccompProfile": UNFILTERED},
            }
            chart = contestants.Chart("", namespace, values=values)
            launch = [*launch_ranks(number), *command]
            trainings = {
                "host": partial(train_on_host, inside, launch),
                "pods": partial(train_in_pods, chart, command),
            }
            yield Comparison(f"{title}, {of_ranks}", trainings, {"pods": 0.998})


def train_on_host(inside: RuncSandbox, command: list[str]) -> float:
    pairs = [*inside.config["Env"], *assign({**ENVIRONMENT, **TRANSPORTS, "HOME": "/tmp"})]
    words = [str(inside.root), f"{OWN_UID}:{OWN_UID}", "env", "--ignore-environment", *pairs]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", ON_HOST, "sh", *words, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return read_speed(done.stdout)


def train_in_pods(chart: contestants.Chart, command: list[str]) -> float:
    try:
        chart.start(command)
        chart.wait_for_end()
        return read_speed(chart.log())
    finally:
        chart.remove()


PARTS: dict[str, Callable[[Sandbox, ExitStack], Iterator[Comparison]]] = {
    "images": compare_images,
    "ranks": compare_ranks,
    "pods": compare_pods,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--only", default="", metavar="NAMES", help=", ".join(PARTS))
    options = parser.parse_args()
    for part, comparisons in contestants.choose_contestants(options.only, PARTS).items():
        rows: list[tuple[str, ...]] = []
        figures = {}
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hvd-bench-"))
            inside = stack.enter_context(sandbox(build_image("examples"), Path(folder) / "output"))
            for comparison in comparisons(inside, stack):
                speeds = comparison.measure(options.turns)
                figures[comparison.title] = speeds
                rows += comparison.rows(speeds)
        text = markdown_table(("", "images/s", "of the first one", "goal"), rows)
        name = f"bench-training {part}"
        publish_figures(name, "performance.md", options.turns, figures, text)


if __name__ == "__main__":
    main()
