"""Trains a classifier of handwritten digits, one allreduce a step, for the tests of faults.

    python3 train.py --steps 200

Rank 0 writes a checkpoint every ten steps, in one atomic move, and a line for each step to
OUTPUT_PATH/steps.jsonl. All ranks together compute the gradient of all training images. So the
weights at the end depend neither on the number of ranks nor on what happened on the way. Rank 0
compares them with those that it then trains alone, and writes the result to result.jsonl.

With --keep, keep keeps the state after each step instead, and there are no checkpoints. With
--report, each rank tells its progress. With --fail, the rank of --rank fails at step --at: in every
attempt, but it hangs in the first one only. With --notice, each rank that is asked to end saves a
checkpoint first, as docs/faults.md tells scripts to.

A benchmark may end a training sooner: at a step whose number it writes to OUTPUT_PATH/end, which
has to be some steps ahead, so that all ranks read it in time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

DATA = Path("/examples/digits.csv.gz")
OUTPUT = Path(os.environ.get("OUTPUT_PATH", "/output"))
CHECKPOINT = OUTPUT / "checkpoint.npz"
# 1440 images: 1, 2, 3, 4, 5 or 6 ranks have equal shares.
TRAINING = 1440
CLASSES = 10
LEARNING_RATE = 0.3
MOMENTUM = 0.9
CHECKPOINT_EVERY = 10


def load() -> tuple[np.ndarray, np.ndarray]:
    """Images with a constant pixel for the bias, and their labels as rows of the unit matrix."""
    rows = np.loadtxt(DATA, delimiter=",", dtype=np.float64)
    images = np.hstack([rows[:, :-1] / 16.0, np.ones((len(rows), 1))])
    return images, np.eye(CLASSES)[rows[:, -1].astype(int)]


def gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean gradient of the cross entropy of a softmax."""
    logits = images @ weights
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return images.T @ (odds / odds.sum(axis=1, keepdims=True) - labels) / len(images)


def advance(state: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """One step of momentum; the state is weights and velocity."""
    velocity = MOMENTUM * state[1] - LEARNING_RATE * slope
    return np.stack([state[0] + velocity, velocity])


def accuracy(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images whose label is recognised."""
    return float(np.mean((images @ weights).argmax(axis=1) == labels.argmax(axis=1)))


def save(step: int, state: np.ndarray) -> None:
    """Write a checkpoint that is complete under its name at any moment."""
    beside = CHECKPOINT.with_name(f"checkpoint.{hvd.rank()}.new.npz")
    with beside.open("wb") as file:
        np.savez(file, step=step, state=state)
        file.flush()
        if (OUTPUT / "hold").exists():
            # A test kills this rank before the checkpoint has its name.
            (OUTPUT / "hold").rename(OUTPUT / "writing")
            time.sleep(600)
        os.fsync(file.fileno())
    beside.replace(CHECKPOINT)


def restore() -> tuple[int, np.ndarray]:
    """Step and state of the checkpoint, on all ranks as rank 0 reads them."""
    step = 0
    state = np.zeros((2, 65, CLASSES))
    if hvd.rank() == 0 and CHECKPOINT.exists():
        with np.load(CHECKPOINT) as file:
            step = int(file["step"])
            state = file["state"]
    step = int(hvd.broadcast(tf.constant(step), 0, name="step"))
    return step, hvd.broadcast(tf.constant(state), 0, name="state").numpy()


def last_step(planned: int) -> int:
    """The step at which the training ends."""
    end = OUTPUT / "end"
    return min(planned, int(end.read_text())) if end.exists() else planned


def fail(how: str) -> None:
    """Fail as scripts do."""
    if how == "raise":
        raise ValueError("this batch has no labels")
    taken = []
    while how == "memory":
        # 64 MiB that are touched, so that they are really taken.
        taken.append(np.ones(1 << 23))
    if how == "hang" and os.environ["HVD_ATTEMPT"] == "1":
        time.sleep(600)


def write_line(name: str, **fields: object) -> None:
    """Add a line to a file, in one write."""
    with (OUTPUT / name).open("a") as file:
        file.write(json.dumps({"at": time.time(), **fields}) + "\n")


def tell_rank() -> float:
    """Write which process this rank is, and return when it began."""
    start = time.time()
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    is_fork = b"warm/server.py" in parent
    host = socket.gethostname()
    write_line("ranks.jsonl", rank=hvd.rank(), host=host, pid=os.getpid(), fork=is_fork)
    return start


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.05, help="that a step takes at least")
    parser.add_argument("--fail", choices=("raise", "memory", "hang"))
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--report", action="store_true", help="tell the chart the progress")
    parser.add_argument("--keep", action="store_true", help="in the workers' memory")
    parser.add_argument("--notice", action="store_true", help="save when asked to end")
    return parser.parse_args()


def judge(done: int, state: np.ndarray, images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Compare the state after so many steps with that of trainings that nothing has disturbed.

    One of them has one rank, the other one has as many ranks as this one.
    """
    alone = calm = np.zeros_like(state)
    shares = [slice(number, TRAINING, hvd.size()) for number in range(hvd.size())]
    for _ in range(done):
        alone = advance(alone, gradient(alone[0], images[:TRAINING], labels[:TRAINING]))
        slopes = [gradient(calm[0], images[share], labels[share]) for share in shares]
        calm = advance(calm, sum(slopes) / len(slopes))
    return {
        "step": done,
        "ranks": hvd.size(),
        "accuracy": accuracy(state[0], images[TRAINING:], labels[TRAINING:]),
        "undisturbed": accuracy(alone[0], images[TRAINING:], labels[TRAINING:]),
        "difference": float(np.abs(state - alone).max()),
        # All bits are those of as many ranks.
        "equal": bool((state == calm).all()),
    }


def main() -> int:
    """Train. Return 0 at the end, or 128 and the signal's number when asked to end before."""
    options = parse_arguments()
    hvd.init()
    leaving: list[int] = []
    if options.notice:
        signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    rank = hvd.rank()
    start = tell_rank()

    images, labels = load()
    mine = slice(rank, TRAINING, hvd.size())
    if options.keep:
        # In the chart's workers alone, as hvd_progress.
        import keep

        kept = keep.State(weights=np.zeros((2, 65, CLASSES)))
        done = kept.restore()
        state = kept.weights
    else:
        done, state = restore()
    if options.report:
        from hvd_progress import report
    while (step := done + 1) <= (last := last_step(options.steps)):
        began = time.monotonic()
        while rank == 0 and step == last and (OUTPUT / "stay").exists():
            # The fault that a test makes has no effect yet.
            time.sleep(0.05)
        if options.fail and rank == options.rank and step >= options.at:
            fail(options.fail)
        slope = gradient(state[0], images[mine], labels[mine])
        state = advance(state, hvd.allreduce(tf.constant(slope), name="gradient").numpy())
        if rank == 0:
            write_line("steps.jsonl", step=step, start=start)
            if not options.keep and (step % CHECKPOINT_EVERY == 0 or step == last):
                save(step, state)
        if options.keep:
            kept.weights = state
            kept.commit()
        if options.report:
            report(step)
        done = step
        time.sleep(max(0.0, began + options.seconds - time.monotonic()))
        if leaving:
            save(step, state)
            write_line("saved.jsonl", rank=rank, step=step)
            return 128 + leaving[0]
    if rank == 0:
        result = judge(done, state, images, labels)
        write_line("result.jsonl", **result)
        print(f"RESULT {json.dumps(result)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
