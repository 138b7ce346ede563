"""Measures what people repeat while they write a script: python -m tests.bench.bench_loop

They save it, and see it train. The time is that from the moment at which a script is saved to the
last rank's first allreduce under `hvdchart dev`, with two warm workers on the local cluster. The
goal, which nothing checks, is 2 s.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devtools.docs_gen.generated import markdown_table
from devtools.toolchain.tools import tool
from tests.bench.contestants import NAME, bench_namespace
from tests.bench.report import as_range, publish_figures
from tests.support.namespace import Namespace

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


def save_in_turns(namespace: Namespace, turns: int) -> list[float]:
    """Seconds from each save under `hvdchart dev` to the last rank's first allreduce."""
    with tempfile.TemporaryDirectory(prefix="hvd-loop-") as name:
        script = Path(name) / "train.py"
        script.write_text(SCRIPT.format(turn=0))
        words = [str(write_spec(Path(name), namespace.image)), "--code", str(script)]
        words += ["--namespace", namespace.name, "--helm", str(tool("helm4"))]
        process = subprocess.Popen(
            [sys.executable, "-m", "hvdchart", "dev", *words],
            env=namespace.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            # The first turn starts the workers.
            read_allreduce(process, 0)
            seconds = []
            for turn in range(1, turns + 1):
                # A person reads what the run has printed.
                time.sleep(3)
                script.write_text(SCRIPT.format(turn=turn))
                saved = time.time()
                seconds.append(read_allreduce(process, turn) - saved)
        finally:
            # It removes the release.
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    with bench_namespace() as namespace:
        saves = save_in_turns(namespace, turns)
    row = ("from the saved script to the last rank's first allreduce", as_range(saves))
    publish_figures(
        "bench-loop", "performance.md", turns, {"saves": saves}, markdown_table(("", "s"), [row])
    )


if __name__ == "__main__":
    main()
