"""`helm install` to the ranks' first allreduce: python -m tests.bench.bench_startup [RUNS]

Two workers of one rank each on the local cluster, the image there already, a fresh release each
time. Prints each run's figures and the medians. Horovod's and TensorFlow's import is shown on its
own: it is the same for every launcher.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import datetime

from devtools.images.build import build
from devtools.localkube import cluster
from devtools.localkube.images import load
from tests.e2e.cluster import Namespace

# The ranks tell when they begin, when the frameworks are imported and when an allreduce is done.
SCRIPT = """
import sys, time
def tell(what):
    sys.stdout.write(f"AT {what} {time.time():.3f}\\n")
tell("rank")
import tensorflow as tf
import horovod.tensorflow as hvd
tell("imported")
hvd.init()
hvd.allreduce(tf.ones(1))
tell("allreduce")
"""
STAGES = ("master", "hosts", "rank", "imported", "allreduce")


@dataclass(frozen=True)
class Start:
    """Seconds from `helm install` to each stage; of the ranks, the last to reach it."""

    seconds: dict[str, float]


def measure(namespace: Namespace) -> Start:
    """One fresh release, from install to its removal."""
    began = time.time()
    namespace.install("start", {"master": {"args": ["python3", "-c", SCRIPT]}})
    installed = time.time()
    assert namespace.wait_for_end("start") == "Complete", namespace.describe("start")
    log = namespace.kubectl("logs", f"job/{namespace.job('start')}", "--timestamps")
    namespace.helm("uninstall", "start", "--wait")
    seconds = {"installed": installed - began}
    for line in log.splitlines():
        stamp, _, text = line.partition(" ")
        own = re.match(r"AT (\w+) ([0-9.]+)", text)
        if own:
            seconds[own[1]] = max(seconds.get(own[1], 0), float(own[2]) - began)
        elif "waiting for" in text:
            seconds.setdefault("master", read_stamp(stamp) - began)
        elif "$ mpirun" in text:
            seconds["hosts"] = read_stamp(stamp) - began
    return Start(seconds)


def read_stamp(text: str) -> float:
    """A log line's RFC 3339 time in seconds; Python reads microseconds, the kubelet gives nano."""
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
    starts = [measure(namespace) for _ in range(runs)]
    columns = ("installed", *STAGES)
    print("seconds since `helm install` began")
    print("run    " + "".join(f"{column:>11}" for column in columns))
    for number, start in enumerate(starts, 1):
        print(f"{number:<7}" + "".join(f"{start.seconds[column]:>11.2f}" for column in columns))
    medians = [statistics.median(start.seconds[column] for start in starts) for column in columns]
    print("median " + "".join(f"{median:>11.2f}" for median in medians))
    namespace.kubectl("delete", "namespace", namespace.name)


if __name__ == "__main__":
    main()
