"""A run as it was read from a cluster: four ranks, the second attempt, a stall on one of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hvdchart.run.inside.top import Usage, parse_probe
from hvdchart.run.state.release import Release
from hvdchart.run.state.view import RunView
from hvdchart.watch.from_run import build_view
from hvdchart.watch.view_model import View
from tests.unit.hvdchart.objects import JOB, LABELS, RUNNING, event, job, pod

# Seconds since 1970 of the Job's creation.
BEGAN = datetime(2026, 1, 1, 10, 0, tzinfo=UTC).timestamp()
SET = {"metadata": {"name": "hvd-worker", "labels": LABELS}, "spec": {"replicas": 4}}
STEPS = 5000


def losses(last: int) -> list[tuple[int, float]]:
    """A realistic loss curve: it falls more and more slowly, and is not smooth."""
    pairs = []
    for step in range(20, last + 1, 40):
        noise = 0.05 * math.sin(step / 37) + 0.035 * math.sin(step / 11.0)
        loss = 0.31 + 2.1 * math.exp(-step / 620) + noise * math.exp(-step / 2600)
        pairs.append((step, round(loss, 5)))
    return pairs


def time(after: float) -> str:
    """The time so many seconds after the creation, in RFC 3339."""
    return f"{datetime.fromtimestamp(BEGAN + after, UTC):%Y-%m-%dT%H:%M:%SZ}"


def happened(after: float, reason: str, message: str, about: str = JOB) -> Any:
    kind = "Job" if about == JOB else "Pod"
    name = f"{about}.{reason}.{after:.0f}"
    return event(about, kind, reason, message, at=time(after), name=name)


EVENTS = [
    happened(1, "Started", "attempt 1 waits for workers of 4 ranks"),
    happened(3, "FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu.", "hvd-worker-3"),
    happened(41, "WorkersReady", "4 workers respond"),
    happened(42, "Training", "attempt 1: mpirun starts 4 ranks on 4 workers"),
    happened(391, "WorkerLost", "lost hvd-worker-2: its node node-c does not answer for 15 s"),
    happened(393, "Failed", "lost hvd-worker-2: its node node-c does not answer for 15 s"),
    happened(394, "Started", "attempt 2 waits for workers of 4 ranks"),
    happened(417, "WorkersReady", "4 workers respond"),
    happened(418, "Training", "attempt 2: mpirun starts 4 ranks on 4 workers"),
]
STALLED = happened(
    1120, "Stalled", "rank 1 on hvd-worker-1 has not joined DistributedAllreduce.grads_0 for 15 s"
)
STALL = {
    "rank": 1,
    "worker": "hvd-worker-1",
    "what": "has not joined DistributedAllreduce.grads_0",
    "since": time(1105),
    "place": "train.py:41 in next_batch",
}
LOG = [
    "[hvd +0.1s] attempt 1 waits for workers of 4 ranks",
    "[hvd +23.5s] mpirun starts 4 ranks on 4 workers",
    "[1,0]<stdout>:resumed after step 1880 from /output/checkpoint-1880",
    *(
        f"[1,0]<stdout>:step {step:>5}  loss {loss:.4f}  412 images/s"
        for step, loss in losses(3160)
        if step > 2300 and not (step - 20) % 80
    ),
]
STACK = [
    "[hvd +1120.0s] stalled: rank 1 on hvd-worker-1 has not joined DistributedAllreduce.grads_0 "
    "for 15 s",
    "[hvd +1120.4s] hvd-worker-1: rank 1 shows its Python stack:",
    "[hvd +1120.4s] hvd-worker-1: Current thread 0x00007f1c2ffff740 (most recent call first):",
    '[hvd +1120.4s] hvd-worker-1:   File "/usr/lib/python3.11/queue.py", line 171 in get',
    '[hvd +1120.4s] hvd-worker-1:   File "/horovod/code/3c5f0e8d2/train.py", line 41 in next_batch',
    '[hvd +1120.4s] hvd-worker-1:   File "/horovod/code/3c5f0e8d2/train.py", line 88 in main',
]


def probe(cpus: float, mebibytes: int, ranks: str = "") -> str:
    """What a pod answers to `top`."""
    return f"cpu 1000000 10\ncpu {1000000 + cpus * 1e6:.0f} 11\nmemory {mebibytes << 20}\n{ranks}"


def usages(step: int, slow: int = -1) -> list[Usage]:
    measured = []
    for rank in range(4):
        speed = 103.2 - 2.7 * rank
        own_step = step - (1 if rank == slow else 0)
        ranks = f"{rank}:hvdchart_step {own_step}\n{rank}:hvdchart_samples_per_second {speed}\n"
        cpus = 0.02 if rank == slow else 3.61 + 0.07 * rank
        measured.append(parse_probe(f"hvd-worker-{rank}", probe(cpus, 5120 + 310 * rank, ranks)))
    return [*measured, parse_probe(f"{JOB}-x", probe(0.04, 96))]


def usages_with_gpus(step: int) -> list[Usage]:
    """Those of workers with two GPUs each, of which the second one does less and holds more."""
    measured = usages(step)
    for worker in measured[:-1]:
        for gpu, (share, gibibytes) in enumerate([(0.93, 31), (0.4, 62)]):
            values = {"utilization_ratio": share, "memory_used_bytes": float(gibibytes << 30)}
            worker.gpus[str(gpu)] = {**values, "memory_bytes": float(80 << 30)}
    return measured


def record(step: int, seconds_left: int, after: float, state: str = "Running") -> dict[str, str]:
    curve = losses(step)
    progress = {
        "step": step,
        "steps": STEPS,
        "loss": curve[-1][1],
        "samplesPerSecond": 412.3,
        "secondsLeft": seconds_left,
        "time": time(after),
        "losses": curve,
    }
    return {
        "job": JOB,
        "state": state,
        "attempts": "2",
        "reason": "",
        "time": time(after),
        "renewed": time(after + 5),
        "progress": json.dumps(progress),
    }


def pods() -> list[Any]:
    nodes = ("node-a", "node-b", "node-d", "node-b")
    workers = [
        pod(f"hvd-worker-{ordinal}", "worker", RUNNING, ready=True, node=node)
        for ordinal, node in enumerate(nodes)
    ]
    return [pod(f"{JOB}-x", "master", RUNNING, ready=True, node="node-a"), *workers]


def groups_of_four(**more: Any) -> Any:
    """The Job of a run of four ranks."""
    run = job(**more)
    variable = run["spec"]["template"]["spec"]["containers"][0]["env"][0]
    described = json.loads(variable["value"])
    described["groups"][0]["number"] = 4
    variable["value"] = json.dumps(described)
    return run


def training(step: int = 3140) -> Release:
    """It trains, after a worker was lost in the first attempt."""
    progress = record(step, 640, 1100)
    return Release("hvd", [groups_of_four()], [SET], pods(), list(EVENTS), progress)


def training_view() -> View:
    return build_view(RunView(training()), "team", BEGAN + 1102, usages=usages(3140), lines=LOG)


def gpus_view() -> View:
    run = RunView(training())
    return build_view(run, "team", BEGAN + 1102, usages=usages_with_gpus(3140), lines=LOG)


def stalled_view() -> View:
    whole = training()
    own_record = {**whole.record, "stall": json.dumps(STALL)}
    release = replace(whole, events=[*whole.events, STALLED], record=own_record)
    lines = [*LOG, *STACK]
    return build_view(
        RunView(release), "team", BEGAN + 1180, usages=usages(3140, slow=1), lines=lines
    )


def finished() -> Release:
    """Its pods are gone, and its record and its Job are there."""
    scaled = {**SET, "spec": {"replicas": 0}}
    condition = {
        "type": "Complete",
        "status": "True",
        "lastTransitionTime": time(1760),
    }
    done = groups_of_four()
    done["status"]["conditions"] = [condition]
    events = [*EVENTS, happened(1755, "Finished", "the training ended with exit code 0")]
    return Release("hvd", [done], [scaled], [], events, record(STEPS, 0, 1750, "Finished"))


def finished_view() -> View:
    return build_view(RunView(finished()), "team", BEGAN + 4000, lines=LOG)
