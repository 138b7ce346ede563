"""The plan's thread settings against others: python -m tests.bench.bench_threads [RUNS [TURNS]]

Trains a Keras network on random images in a pod of the local cluster, one worker that has all of
this machine's cores, each setting RUNS times (3) in turns, then those ahead of the plan's own
setting TURNS times (9) in turns with it. Prints every setting's median and how far the plan's own
is from the best: the aim is 3 %. Only an otherwise idle machine tells that.
"""

from __future__ import annotations

import json
import os
import sys

from hvdchart.cluster import Cluster
from hvdchart.plan import Plan, make_plan
from hvdchart.spec import parse_spec
from hvdchart.tune import Grid, benchmark_command, described, gain, settings_of
from hvdchart.tune_run import Bench, search
from images.build import build
from localkube import cluster
from localkube.images import load
from localkube.tools import tool
from tests.e2e.cluster import Namespace

MODEL, BATCH, STEPS = "MobileNetV2", 8, 20
AIM = 0.03


def plan_here(image: str) -> Plan:
    """The plan of one worker with all of this machine's cores, which others need too."""
    repository, _, tag = image.rpartition(":")
    node = {"name": "here", "count": 1, "shared": True, "memory": "4Gi", "tuning": {"cpu": "100m"}}
    spec = {
        "apiVersion": "hvdchart/v1",
        "name": "bench",
        "nodes": [{**node, "coresPerSocket": os.cpu_count()}],
        "image": {"repository": repository, "tag": tag},
        "train": {"command": ["python3", "-V"]},
    }
    return make_plan(parse_spec(json.dumps(spec).encode()))


def main() -> None:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    kubeconfig = cluster.up()
    image = build("examples")
    load(image.reference)
    os.environ["KUBECONFIG"] = str(kubeconfig)
    namespace = Namespace("hvd-bench-threads", kubeconfig, image.reference)
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name}}
    namespace.kubectl("apply", "--filename", "-", input=json.dumps(manifest))
    plan = plan_here(image.reference)
    bench = Bench(plan, benchmark_command(MODEL, BATCH, STEPS), 1, repeats, turns)
    found = search(
        Cluster.connect(namespace=namespace.name),
        bench,
        settings_of(plan, Grid()),
        print,
        helm=str(tool("helm3")),
    )
    print(f"\n{MODEL}, batch {BATCH}, {STEPS} steps, {os.cpu_count()} CPUs; images/s")
    for measured in found.measured:
        print(described(measured) + (" <- the plan" if measured is found.measured[0] else ""))
    print(f"the plan and those ahead of it, {turns} times more in turns")
    own = found.again[0]
    for measured in found.again:
        print(f"{described(measured)}, {gain(own, measured):+.1%}")
    behind = max(gain(own, measured) for measured in found.again)
    print(f"the plan is {behind:.1%} behind the best (aim: {AIM:.0%})")
    namespace.kubectl("delete", "namespace", namespace.name)


if __name__ == "__main__":
    main()
