"""Measures what people repeat while they write a script: save it, and see it train.

python -m tests.bench.bench_loop [TURNS]

Measures the time from the moment at which a script is saved to the last rank's first allreduce
under `hvdchart dev`, with two warm workers on the local cluster; and the time that `hvdchart deploy
--detach` takes for unchanged code. The goal of both, which nothing checks, is 3 s.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.toolchain.tools import tool
from tests.bench.contestants import NAME, Chart, bench_namespace
from tests.bench.report import as_markdown
from tests.e2e.cluster import Namespace

SCRIPT = """
import time
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
hvd.allreduce(tf.ones(1))
print(f"AT {{time.time():.3f}} turn {turn}", flush=True)
"""
RANKS = 2


def write_spec(folder: Path, image: str) -> Path:
    """A spec of two workers of one rank, which share this machine."""
    repository, _, tag = image.rpartition(":")
    node = {"name": "here", "count": RANKS, "shared": True, "coresPerSocket": 1, "memory": "4Gi"}
    spec = {
        "apiVersion": "hvdchart/v1",
        "name": NAME,
        "nodes": [{**node, "tuning": {"cpu": "50m"}}],
        "image": {"repository": repository, "tag": tag},
        "train": {"command": ["python3", "train.py"]},
        "values": {"cleanup": "Never"},
    }
    path = folder / "run.spec.yaml"
    path.write_text(json.dumps(spec))
    return path


def command(namespace: Namespace, verb: str, *arguments: str) -> list[str]:
    """A command line of hvdchart."""
    where = ("--namespace", namespace.name, "--helm", str(tool("helm4")))
    return [sys.executable, "-m", "hvdchart", verb, *arguments, *where]


@contextmanager
def developing(namespace: Namespace, spec: Path, script: Path) -> Iterator[subprocess.Popen[str]]:
    """`hvdchart dev`; an interrupt ends it and removes the release."""
    process = subprocess.Popen(
        command(namespace, "dev", str(spec), "--code", str(script)),
        env=namespace.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)


def save(script: Path, turn: int) -> float:
    """Save the script of a turn; when."""
    script.write_text(SCRIPT.format(turn=turn))
    return time.time()


def read_allreduce(process: subprocess.Popen[str], turn: int) -> float:
    """When the last rank of a turn had made its first allreduce."""
    assert process.stdout
    seen: list[float] = []
    for line in process.stdout:
        match = re.search(rf"AT ([\d.]+) turn {turn}$", line.rstrip())
        seen += [float(match[1])] if match else []
        if len(seen) == RANKS:
            return max(seen)
    raise SystemExit(f"hvdchart dev ended in turn {turn}")


def measure_saves(namespace: Namespace, spec: Path, script: Path, turns: int) -> list[float]:
    """The seconds of each turn after the first one, which starts the workers."""
    save(script, 0)
    seconds = []
    with developing(namespace, spec, script) as process:
        read_allreduce(process, 0)
        for turn in range(1, turns + 1):
            # A person reads what the run has printed.
            time.sleep(3)
            saved = save(script, turn)
            seconds.append(read_allreduce(process, turn) - saved)
    return seconds


def measure_deploys(namespace: Namespace, spec: Path, script: Path, turns: int) -> list[float]:
    """The seconds of each `deploy` after the first one."""
    seconds = []
    for _ in range(turns + 1):
        began = time.monotonic()
        line = command(namespace, "deploy", str(spec), "--code", str(script), "--detach")
        subprocess.run(line, env=namespace.environment(), capture_output=True, check=True)
        seconds.append(time.monotonic() - began)
    return seconds[1:]


def main() -> None:
    """Measure and print."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    folder = tempfile.TemporaryDirectory(prefix="hvd-loop-")
    with bench_namespace() as namespace, folder as name:
        script = Path(name) / "train.py"
        spec = write_spec(Path(name), namespace.image)
        rows = {
            "saved to the last rank's first allreduce, s": measure_saves(
                namespace, spec, script, turns
            ),
            "deploy --detach of unchanged code, s": measure_deploys(namespace, spec, script, turns),
        }
        Chart("", namespace).remove()
    print(as_markdown(f"hvdchart on two warm workers, {turns} turns", rows))


if __name__ == "__main__":
    main()
