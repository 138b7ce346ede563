"""Measures how long a run takes from `helm install` to its first allreduce.

python -m tests.bench.bench_start [--turns 5] [--only chart,waiting]

Two workers of one rank each on the local cluster, which has the image; in turns with Kubeflow's MPI
Operator, which `make` builds first. The import of TensorFlow and Horovod is a stage of its own. The
run then gets other arguments by `helm upgrade`, with which the same workers train.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from tests.bench.contestants import Chart, Contestant, add_options, choose, contestants, in_turns
from tests.bench.report import Measured, Rows, add_turn, write_report

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
COMMAND = ("python3", "-c", SCRIPT)
CHANGED = ("python3", "-c", SCRIPT, "changed")
TOTAL = "Start of a run to the first allreduce, s"
CHANGE = "On living workers, to the first allreduce, s"


def measure(contestant: Contestant, start: Callable[[], None]) -> dict[str, float]:
    """Start a run; the seconds to each stage, of the last rank."""
    began = time.time()
    start()
    seconds = {"started": time.time() - began}
    contestant.wait_for_end()
    for line in contestant.log().splitlines():
        stamp, _, text = line.partition(" ")
        stage = re.search(r"AT (\w+) ([0-9.]+)", text)
        if stage:
            seconds[stage[1]] = max(seconds.get(stage[1], 0), float(stage[2]) - began)
        elif "waiting for hosts" in text:
            seconds.setdefault("master", read_stamp(stamp) - began)
        elif re.search(r"\] \$ (mpirun|horovodrun)", text):
            seconds["launcher"] = read_stamp(stamp) - began
    return seconds


def read_stamp(text: str) -> float:
    """An RFC 3339 time as seconds; the kubelet writes nanoseconds, Python reads microseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z", r"\1+00:00", text)).timestamp()


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    measured: Measured = {}
    with contestants(values={"cleanup": "Never"}) as everyone:
        # A spare would only take time from the others.
        everyone.pop("spare")
        for contestant in in_turns([*choose(options.only, everyone).values()], options.turns):
            seconds = measure(contestant, partial(contestant.start, COMMAND))
            add_turn(measured, contestant.name, seconds)
            if isinstance(contestant, Chart):
                seconds = measure(contestant, partial(contestant.change, CHANGED))
                add_turn(measured, f"{contestant.name}, changed arguments", seconds)
            contestant.remove()
    write_report("bench-start", tables(measured), measured, options.turns)


def tables(measured: Measured) -> dict[str, Rows]:
    """The figures by title, the most important ones first."""
    titles: dict[str, dict[str, list[float]]] = {TOTAL: {}}
    for name, turns in measured.items():
        ends = [seconds["allreduce"] for seconds in turns]
        if "changed" in name:
            launches = [seconds["allreduce"] - seconds["launcher"] for seconds in turns]
            rows = {f"{name}: helm upgrade": ends, f"{name}: launcher": launches}
            titles.setdefault(CHANGE, {}).update(rows)
        else:
            titles[TOTAL][name] = ends
    return {**titles}


if __name__ == "__main__":
    main()
