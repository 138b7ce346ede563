"""Compares the numbers of threads that TensorFlow, the chart and the plan choose.

`python -m tests.bench.bench_defaults [TURNS]` trains ResNet-50, batch 4, with two ranks in the cpu
image, again and again in turns: as TensorFlow starts by itself, with what charts/horovod/files/
threads.py chooses for two workers of one rank and for one worker of two ranks, and with the plan of
shared machines. Needs an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import Sandbox, output_of, sandbox
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.tune.grid import benchmark_command
from tests.bench.turns import Speeds, print_speeds

FILES = Path(__file__).resolve().parents[2] / "charts" / "horovod" / "files"
TWO_RANKS = ("mpirun", "-np", "2", "--map-by", "slot", "--bind-to", "none", "--oversubscribe")
SPEC = """
apiVersion: hvdchart/v1
name: bench
nodes: [{{name: here, count: 2, shared: true, coresPerSocket: {cores}, memory: 4Gi}}]
train: {{command: [python3, -V]}}
"""


def environments() -> dict[str, dict[str, str | None]]:
    """The variables of each candidate, by its name; None for one that the image must not set."""
    sys.path.insert(0, str(FILES))
    from hvd_pods.common import threads

    cpus = os.sched_getaffinity(0)
    half = max(1, len(cpus) // 2)
    plan = make_plan(parse_spec(SPEC.format(cores=half)))
    return {
        "nothing set, and not by the image": {"TF_ENABLE_ONEDNN_OPTS": None},
        "chosen, two workers of one rank": {**threads.choose_threads({}, 1, cpus, cpus)},
        "chosen, one worker of two ranks": {**threads.choose_threads({}, 2, cpus, cpus)},
        "the plan": {**plan.groups[0].env},
    }


def images_per_second(inside: Sandbox, environment: dict[str, str | None]) -> float:
    """The speed of one training of two ranks."""
    command = benchmark_command("ResNet50", 4, 6)
    unset = [f"--unset={name}" for name, value in environment.items() if value is None]
    pairs = [f"{name}={value}" for name, value in environment.items() if value is not None]
    done = inside.run(*TWO_RANKS, "env", *unset, *pairs, *command)
    match = re.search(r"RESULT (\{.*\})", done.stdout)
    if match is None:
        raise SystemExit(f"no speed:\n{output_of(done)}")
    return float(json.loads(match[1])["imagesPerSecond"])


def main() -> None:
    """Measure and print."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    candidates = environments()
    speeds: Speeds = {name: [] for name in candidates}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hvd-bench-")))
        inside = stack.enter_context(sandbox(build("cpu"), folder / "output"))
        for turn in range(turns):
            for name, environment in candidates.items():
                speeds[name].append(images_per_second(inside, environment))
            shown = ", ".join(f"{each[-1]:.2f}" for each in speeds.values())
            print(f"turn {turn + 1}: {shown}", flush=True)
    print_speeds(f"ResNet-50, batch 4, two ranks, {len(os.sched_getaffinity(0))} CPUs", speeds)


if __name__ == "__main__":
    main()
