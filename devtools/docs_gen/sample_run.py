"""The run that the pictures of docs/watching.md show: four ranks, in their second attempt."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

from hvdchart.run.state.progress import Progress
from hvdchart.run.state.stalls import Stall
from hvdchart.watch.view_model import Mark, Row, Span, View

NAME = "resnet50"
MASTER = f"{NAME}-master-1a2b3c4d-x"
NODES = ("node-a", "node-b", "node-d", "node-b")
# The start of the run in seconds since 1970: ten o'clock in the local time zone.
START_SECONDS = datetime(2026, 1, 1, 10, 0).timestamp()
STEP = 3140
STEPS = 5000
# The rank that the others wait for, and the start of the wait.
STALLED_RANK = 1
STALL_START_SECONDS = 1105
TENSOR = "DistributedAllreduce.grads_0"


def worker(rank: int) -> str:
    """Return the pod of a rank."""
    return f"{NAME}-worker-{rank}"


def losses(last: int) -> list[tuple[int, float]]:
    """Return a realistic loss curve: it falls more and more slowly, and is not smooth."""
    pairs = []
    for step in range(20, last + 1, 40):
        noise = 0.05 * math.sin(step / 37) + 0.035 * math.sin(step / 11.0)
        loss = 0.31 + 2.1 * math.exp(-step / 620) + noise * math.exp(-step / 2600)
        pairs.append((step, round(loss, 5)))
    return pairs


LOST = f"lost {worker(2)}: its node node-c does not answer for 15 s"
MARKS = (
    Mark(START_SECONDS, "stage", "created"),
    Mark(START_SECONDS + 1, "stage", "attempt 1 waits for workers of 4 ranks"),
    Mark(
        START_SECONDS + 3,
        "warning",
        f"{worker(3)}: FailedScheduling: 0/3 nodes are available: 3 Insufficient cpu.",
    ),
    Mark(START_SECONDS + 41, "stage", "4 workers respond"),
    Mark(START_SECONDS + 42, "attempt", "attempt 1: mpirun starts 4 ranks on 4 workers"),
    Mark(START_SECONDS + 391, "fault", LOST),
    Mark(START_SECONDS + 394, "stage", "attempt 2 waits for workers of 4 ranks"),
    Mark(START_SECONDS + 417, "stage", "4 workers respond"),
    Mark(START_SECONDS + 418, "attempt", "attempt 2: mpirun starts 4 ranks on 4 workers"),
)
STALL = Stall(
    STALLED_RANK,
    worker(STALLED_RANK),
    f"has not joined {TENSOR}",
    START_SECONDS + STALL_START_SECONDS,
    "train.py:41 in next_batch",
)
STALL_MARK = f"rank {STALLED_RANK} on {worker(STALLED_RANK)} has not joined {TENSOR} for 15 s"
LOG = (
    "[hvd +0.1s] attempt 1 waits for workers of 4 ranks",
    "[hvd +23.5s] mpirun starts 4 ranks on 4 workers",
    "[0] resumed after step 1880 from /output/checkpoint-1880",
    *(
        f"[0] step {step:>5}  loss {loss:.4f}  412 images/s"
        for step, loss in losses(STEP + 20)
        if step > 2300 and not (step - 20) % 80
    ),
)
SAYS = f"[hvd +1120.4s] {worker(STALLED_RANK)}: "
STACK = (
    f"[hvd +1120.0s] stalled: {STALL_MARK}",
    f"{SAYS}rank {STALLED_RANK} shows its Python stack:",
    f"{SAYS}Current thread 0x00007f1c2ffff740 (most recent call first):",
    f'{SAYS}  File "/usr/lib/python3.11/queue.py", line 171 in get',
    f'{SAYS}  File "/horovod/code/3c5f0e8d2/train.py", line 41 in next_batch',
    f'{SAYS}  File "/horovod/code/3c5f0e8d2/train.py", line 88 in main',
)


def row(rank: int) -> Row:
    """Return the row of a rank that trains."""
    return Row(
        rank=rank,
        pod=worker(rank),
        node=NODES[rank],
        state="Running",
        step=STEP,
        rate=103.2 - 2.7 * rank,
        cpus=3.61 + 0.07 * rank,
        memory=5120 + 310 * rank << 20,
    )


def spans(now: float) -> tuple[Span, ...]:
    """Return the parts of the time line until now."""
    return (
        Span(START_SECONDS, START_SECONDS + 42, "waiting", 0),
        Span(START_SECONDS + 42, START_SECONDS + 391, "training", 1),
        Span(START_SECONDS + 391, START_SECONDS + 418, "lost", 1),
        Span(START_SECONDS + 418, now, "training", 2),
    )


def training_view() -> View:
    """Return the view of a run that trains."""
    now = START_SECONDS + 1102
    master = Row(None, MASTER, "node-a", "Running", cpus=0.04, memory=96 << 20)
    curve = losses(STEP)
    return View(
        name=NAME,
        namespace="team",
        state="running",
        reason="",
        remedy="",
        now=now,
        started=START_SECONDS,
        ended=None,
        attempt=2,
        attempts=4,
        workers_ready=4,
        workers_wanted=4,
        progress=Progress(STEP, STEPS, 0.327, 412.3, seconds_left=640, idle_seconds=5),
        losses=tuple(curve),
        rows=(*map(row, range(len(NODES))), master),
        more_rows=0,
        marks=MARKS,
        spans=spans(now),
        stall=None,
        log=LOG,
    )


def stalled_view() -> View:
    """Return the view of a run that waits for a rank."""
    view = training_view()
    now = START_SECONDS + 1180
    behind = replace(row(STALLED_RANK), state="Stalled", step=STEP - 1, cpus=0.02)
    return replace(
        view,
        now=now,
        rows=tuple(behind if each.rank == STALLED_RANK else each for each in view.rows),
        marks=(*MARKS, Mark(START_SECONDS + 1120, "stall", STALL_MARK)),
        spans=spans(now),
        stall=STALL,
        log=(*LOG, *STACK),
    )
