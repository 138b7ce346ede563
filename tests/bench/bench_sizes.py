"""Measures what it costs to continue with fewer workers and to take them again: make bench-sizes.

A script of PyTorch trains on two ranks of the local cluster. One worker is lost, and a quota leaves
no room for another one; then the quota goes. Beside this chart, the same training under torchrun's
elastic mode in a TrainJob: Trainer has no elasticity of its own, so that torchrun's options are in
the command. The script takes the state from `keep` in one case, and from a file of both workers,
which it writes at each step, in the other, as PyTorch's documentation advises.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from devtools.common.waiting import holds_within, wait_until
from devtools.docs_gen.generated import markdown_table
from devtools.toolchain.tools import TRAINER, module_folder
from tests.bench.contestants import NAME, Chart, Contestant, bench_namespace, in_turns
from tests.bench.fault_figures import Outcome, longest_pause
from tests.bench.report import publish_figures
from tests.bench.trainer import FOLDER, GROUP, Trainer, trainer_controllers
from tests.faults.storm import MOST_FAULTS
from tests.faults.training import read_lines
from tests.support.controllers import running
from tests.support.namespace import Namespace

RUNTIME = "manifests/base/runtimes/torch_distributed.yaml"
# Steps that a training makes before the next change.
BETWEEN = 40
# Seconds in which a training has to go on with another number of ranks.
LIMIT = 240.0
WORKERS = 2
# Debian's PyTorch is built without libuv, which torchrun's stores ask for.
WITHOUT_LIBUV = """
import functools, sys
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend
store = functools.partial(dist.TCPStore, use_libuv=False)
# The package has a function of the same name as this module.
for module in (dist, sys.modules["torch.distributed.rendezvous"], c10d_rendezvous_backend):
    module.TCPStore = store
"""
TORCHRUN = f"""{WITHOUT_LIBUV}
from torch.distributed.run import main
main()
"""
SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
if "--keep" not in sys.argv:
    import without_libuv
dist.init_process_group("gloo")
size, rank = dist.get_world_size(), dist.get_rank()
weights, step = torch.zeros(1000), 0
STATE = "/output/state.pt"
if "--keep" in sys.argv:
    import keep
    state = keep.State(weights=weights)
    state.restore()
    weights, step = state.weights, state.step
elif os.path.exists(STATE):
    saved = torch.load(STATE)
    weights, step = saved["weights"], saved["step"]
while True:
    ones = torch.ones(1000)
    dist.all_reduce(ones)
    weights += ones / size
    step += 1
    if "--keep" in sys.argv:
        state.commit()
    elif rank == 0:
        torch.save({"weights": weights, "step": step}, STATE + ".new")
        os.replace(STATE + ".new", STATE)
    if rank == 0:
        right = bool((weights == step).all())
        line = {"at": time.time(), "step": step, "size": size, "right": right}
        with open("/output/steps.jsonl", "a") as file:
            file.write(json.dumps(line) + "\\n")
    time.sleep(0.05)
"""


class Step(NamedTuple):
    """A step that is done: when, its number, the ranks, and whether the weights are right."""

    at: float
    step: int
    size: int
    right: bool


@dataclass(frozen=True)
class ElasticTorchrun(Trainer):
    """A TrainJob with the runtime that Trainer ships for PyTorch; torchrun is elastic by itself."""

    launcher_label = "jobset.sigs.k8s.io/replicatedjob-name=node"

    @property
    def image(self) -> str:
        return self.namespace.image

    def prepare(self, output: Path | None = None) -> None:
        runtime = yaml.safe_load((module_folder(FOLDER, TRAINER) / RUNTIME).read_text())["spec"]
        (node,) = runtime["template"]["spec"]["replicatedJobs"]
        self._complete(node["template"]["spec"], output)
        self.namespace.apply({**GROUP, "kind": "TrainingRuntime", "spec": runtime})

    def start(self, command: Sequence[str], output: Path | None = None) -> None:
        # torchrun looks for its own name before the cluster's DNS has it, so that it is told where
        # its store is.
        elastic = (
            "python3 /output/torchrun.py --nproc-per-node=1 --rdzv-backend=c10d"
            f" --nnodes=1:{WORKERS} --max-restarts={MOST_FAULTS} --rdzv-id={NAME}"
            ' --rdzv-endpoint="$PET_MASTER_ADDR:$PET_MASTER_PORT"'
            ' --rdzv-conf="is_host=$([ "$JOB_COMPLETION_INDEX" = 0 ]'
            ' && echo true || echo false)"'
        )
        shell = ["sh", "-c", f'exec {elastic} "$@"', "torchrun", *command[1:]]
        spec = {
            "runtimeRef": {"kind": "TrainingRuntime", "name": NAME},
            "trainer": {"numNodes": WORKERS, "command": shell},
        }
        self.namespace.apply({**GROUP, "kind": "TrainJob", "spec": spec})


def everyone(namespace: Namespace) -> dict[str, tuple[Contestant, str]]:
    """The contestants, each with the label of the pod that is to be lost.

    It is not the pod of rank 0, where torchrun meets.
    """
    worker = {"number": WORKERS, "minimum": 1}
    launch = {"mode": "direct", "framework": "torch", "preload": None}
    values = {"cleanup": "Never", "worker": worker, "launch": launch}
    chart = Chart("this chart, `minimum` and `keep`", namespace, ("--keep",), values)
    torchrun = ElasticTorchrun("torchrun, elastic, in a TrainJob", namespace)
    return {
        "chart": (chart, "apps.kubernetes.io/pod-index=1"),
        "torchrun": (torchrun, "batch.kubernetes.io/job-completion-index=1"),
    }


def read_steps(folder: Path) -> list[Step]:
    return [Step(**line) for line in read_lines(folder / "steps.jsonl")]


def change(folder: Path, size: int, make: Callable[[], object]) -> Outcome:
    """Make something that changes the number of ranks to `size`, and wait until they train."""
    at = time.time()
    make()

    def trains() -> bool:
        following = [step for step in read_steps(folder) if step.at > at]
        return sum(step.size == size for step in following) >= BETWEEN

    if not holds_within(trains, LIMIT):
        return Outcome(None, 0)
    steps = read_steps(folder)
    assert all(step.right for step in steps), "the weights are wrong"
    return longest_pause(steps, at)


def measure(contestant: Contestant, lost: str) -> dict[str, Outcome]:
    """Lose a worker that cannot come back, and then let it come back."""
    namespace = contestant.namespace
    with tempfile.TemporaryDirectory(prefix="hvd-bench-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "sizes.py").write_text(SCRIPT)
        (folder / "torchrun.py").write_text(TORCHRUN)
        (folder / "without_libuv.py").write_text(WITHOUT_LIBUV)
        with ExitStack() as stack:
            stack.callback(contestant.remove)
            contestant.prepare(folder)
            contestant.start(("python3", "/output/sizes.py", *contestant.options), folder)
            wait_until(
                lambda: sum(step.size == WORKERS for step in read_steps(folder)) >= BETWEEN,
                LIMIT,
                "all ranks train",
            )
            room = ("delete", "resourcequota", "small", "--ignore-not-found")
            stack.callback(namespace.kubectl, *room)
            namespace.limit_pods(len(namespace.get("pods")["items"]) - 1)
            at_once = ("--wait=false", "--grace-period=0", "--force")
            gone = ("delete", "pod", "--selector", lost, *at_once)
            shrunk = change(folder, 1, lambda: namespace.kubectl(*gone))
            grown = change(folder, WORKERS, lambda: namespace.kubectl(*room))
            print(f"{contestant.name}: {shrunk}, {grown}", flush=True)
    return {"shrunk": shrunk, "grown": grown}


def as_cell(changes: Sequence[Outcome]) -> str:
    """The median of the seconds with their range, and the steps that were made again."""
    seconds = [change.seconds for change in changes if change.seconds is not None]
    if len(seconds) < len(changes):
        return f"{len(changes) - len(seconds)} of {len(changes)} did not go on in {LIMIT:.0f} s"
    middle = statistics.median(seconds)
    again = max(change.again for change in changes)
    return f"{middle:.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), {again} steps again"


def sizes_table(measured: Mapping[str, Sequence[Mapping[str, Outcome]]]) -> str:
    rows = [
        (name, *(as_cell([turn[change] for turn in turns]) for change in ("shrunk", "grown")))
        for name, turns in measured.items()
    ]
    return markdown_table(
        ("Without a step, and steps made again", "2 to 1 worker", "1 to 2 workers"), rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    # Whoever ends this leaves neither controllers nor webhooks behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    with bench_namespace("examples-pytorch", {}) as namespace, ExitStack() as stack:
        stack.enter_context(running(namespace, trainer_controllers()))
        contestants = everyone(namespace)
        measured: dict[str, list[dict[str, Outcome]]] = {}
        for short in in_turns([*contestants], options.turns):
            contestant, lost = contestants[short]
            measured.setdefault(contestant.name, []).append(measure(contestant, lost))
    versions = f"{Chart.version}; PyTorch of the image examples-pytorch; {Trainer.version}."
    figures: dict[str, Any] = {
        name: [{key: outcome._asdict() for key, outcome in turn.items()} for turn in turns]
        for name, turns in measured.items()
    }
    text = f"{versions}\n\n{sizes_table(measured)}"
    publish_figures("bench-sizes", "performance.md", options.turns, figures, text)


if __name__ == "__main__":
    main()
