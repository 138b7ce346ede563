"""Measures `helm install` to the first allreduce: python -m tests.bench.bench_startup [RUNS]

Two workers of one rank each on the local cluster, which has the image; a new release each time. The
import of TensorFlow and Horovod is a stage of its own, since it is the same for every launcher.
Ranks start in turns as new processes and as forks of the warm process.
"""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import datetime

from devtools.images.build import build
from devtools.localkube import cluster
from devtools.localkube.images import load
from tests.bench.figures import print_figures
from tests.e2e.cluster import Namespace

# Each rank prints when it starts, when the frameworks are imported and when an allreduce is done.
SCRIPT = """
import sys, time
def report(stage):
    sys.stdout.write(f"AT {stage} {time.time():.3f}\\n")
report("rank")
import tensorflow as tf
import horovod.tensorflow as hvd
report("imported")
hvd.init()
hvd.allreduce(tf.ones(1))
report("allreduce")
"""
PRELOAD = {"ranks start cold": [], "ranks are forks": ["tensorflow", "horovod.tensorflow"]}
STAGES = ("master", "hosts", "rank", "imported", "allreduce")


def measure(namespace: Namespace, preload: list[str]) -> dict[str, float]:
    """Install a release and uninstall it; the seconds to each stage, of the last rank."""
    began = time.time()
    values = {"master": {"args": ["python3", "-c", SCRIPT]}, "launch": {"preload": preload}}
    namespace.install("start", values)
    installed = time.time()
    assert namespace.wait_for_end("start") == "Complete", namespace.describe("start")
    log = namespace.kubectl("logs", f"job/{namespace.job('start')}", "--timestamps")
    namespace.helm("uninstall", "start", "--wait")
    seconds = {"installed": installed - began}
    for line in log.splitlines():
        stamp, _, text = line.partition(" ")
        stage = re.match(r"AT (\w+) ([0-9.]+)", text)
        if stage:
            seconds[stage[1]] = max(seconds.get(stage[1], 0), float(stage[2]) - began)
        elif "waiting for" in text:
            seconds.setdefault("master", read_stamp(stamp) - began)
        elif "$ mpirun" in text:
            seconds["hosts"] = read_stamp(stamp) - began
    return seconds


def read_stamp(text: str) -> float:
    """An RFC 3339 time as seconds; the kubelet writes nanoseconds, Python reads microseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z", r"\1+00:00", text)).timestamp()


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    kubeconfig = cluster.up()
    image = build("examples")
    load(image.reference)
    namespace = Namespace("hvd-bench", kubeconfig, image.reference)
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name}}
    namespace.kubectl("apply", "--filename", "-", input=json.dumps(manifest))
    turns = [{how: measure(namespace, modules) for how, modules in PRELOAD.items()}
             for _ in range(runs)]  # fmt: skip
    for how in PRELOAD:
        starts = [turn[how] for turn in turns]
        stages = {name: [start[name] for start in starts] for name in ("installed", *STAGES)}
        print_figures(f"Seconds since the start of `helm install`, {runs} runs, {how}", stages)
    namespace.kubectl("delete", "namespace", namespace.name)


if __name__ == "__main__":
    main()
