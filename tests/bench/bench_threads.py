"""Compares the plan's thread settings with others: python -m tests.bench.bench_threads [TURNS]

Trains Keras networks on random images in the cpu image, as one rank on all cores of this machine,
with each setting that `hvdchart tune` tries, in turns (tests/bench/turns.py). Prints the speeds and
how far the plan's setting is behind the best: the aim is 3 %. Needs an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import sys

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.tune.grid import Grid, list_settings
from tests.bench.turns import Candidate, Work, gains, measure, print_speeds

WORKS = (Work("MobileNetV2", 8, 8), Work("ResNet50", 8, 3))
AIM = 0.03


def plan_here() -> Plan:
    """The plan of one worker with all of this machine's cores."""
    spec = {
        "apiVersion": "hvdchart/v1",
        "name": "bench",
        "nodes": [{"name": "here", "count": 1, "coresPerSocket": os.cpu_count(), "memory": "4Gi"}],
        "image": {"repository": "horovod-cpu", "tag": "any"},
        "train": {"command": ["python3", "-V"]},
    }
    return make_plan(parse_spec(json.dumps(spec).encode()))


def main() -> None:
    """Measure and print."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    plan = plan_here()
    settings = list_settings(plan, Grid())
    names = [" ".join(f"{name}={value}" for name, value in each.items()) for each in settings]
    candidates = [
        Candidate(name, environment={**plan.groups[0].env, **each})
        for name, each in zip(names, settings, strict=True)
    ]
    for work in WORKS:
        speeds = measure(candidates, work, turns)
        print_speeds(f"{work.model}, batch {work.batch_size}, {os.cpu_count()} CPUs", speeds)
        behind = max(gains(speeds, names[0]).values())
        print(f"The plan (first row) is {behind:.1%} behind the best (aim: {AIM:.0%}).\n")


if __name__ == "__main__":
    main()
