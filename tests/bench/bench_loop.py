"""Measures what people repeat while they write a script: save it, and see it train.

python -m tests.bench.bench_loop [TURNS]

All with two warm workers on the local cluster:

- from the moment at which a script is saved to the last rank's first allreduce under `hvdchart dev`
- `helm upgrade` with a changed script
- from the launcher's start to the beginning of the script in the last rank

The goals, which nothing checks, are 2, 1.1 and 0.2 s.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devtools.toolchain.tools import tool
from tests.bench.contestants import NAME, Chart, bench_namespace, read_stamp
from tests.bench.report import as_range
from tests.support.namespace import CHART, Namespace

SCRIPT = """
import time
print(f"BEGIN {{time.time():.3f}} turn {turn}", flush=True)
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


def upgrade_in_turns(namespace: Namespace, turns: int) -> tuple[list[float], list[float]]:
    """Seconds of each `helm upgrade`, and from each start of the launcher to the last script's."""
    upgrades = []
    launches = []
    for turn in range(turns + 1):
        values = {
            "code": {"files": {"train.py": SCRIPT.format(turn=turn)}},
            "worker": {"number": RANKS},
            "cleanup": "Never",
        }
        verb = "upgrade" if turn else "install"
        began = time.monotonic()
        done = namespace.helm(verb, NAME, str(CHART), values=values, preload=True)
        took = time.monotonic() - began
        assert done.returncode == 0, done.stderr
        namespace.wait_for_end(NAME)
        # The first turn starts the workers.
        if turn:
            upgrades.append(took)
            launches.append(read_launch(Chart("", namespace).log()))
    return upgrades, launches


def read_launch(log: str) -> float:
    """Seconds from the line with the launcher's command to the beginning of the last script."""
    begun = [float(at) for at in re.findall(r"BEGIN ([\d.]+) turn", log)]
    command = re.search(r"^(\S+) \[hvd.*?\] \$ ", log, re.MULTILINE)
    assert command is not None, log
    assert len(begun) == RANKS, log
    return max(begun) - read_stamp(command[1])


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with bench_namespace() as namespace:
        saves = save_in_turns(namespace, turns)
        Chart("", namespace).remove()
        upgrades, launches = upgrade_in_turns(namespace, turns)
        Chart("", namespace).remove()
    print(f"Saved to the last rank's first allreduce, s: {as_range(saves)}")
    print(f"helm upgrade, s: {as_range(upgrades)}")
    print(f"Launcher's start to the last script's beginning, s: {as_range(launches)}")


if __name__ == "__main__":
    main()
