"""An elastic training of two ranks, of which the first one dies once. Run by horovodrun.

The last line that rank 0 prints is DONE, the number of steps, and how many ranks there were each
time that the training began.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any
from unittest.mock import Mock

import horovod.tensorflow as hvd
import tensorflow as tf

STEPS, COMMIT_EVERY, LOST_AT = 60, 10, 33


def check_other_errors() -> None:
    """An error of TensorFlow that is none of Horovod's ends the training as an error."""

    @hvd.elastic.run
    def train(state: Any) -> None:
        raise tf.errors.UnknownError(None, None, "no space left on device")

    try:
        train(Mock())
    except tf.errors.UnknownError:
        return
    raise AssertionError("the error was lost, and the training counts as finished")


def main() -> None:
    check_other_errors()
    hvd.init()
    model = tf.keras.Sequential([tf.keras.Input((100,)), tf.keras.layers.Dense(10)])
    sums = model.trainable_variables
    for total in sums:
        total.assign(tf.zeros_like(total))
    optimizer = tf.keras.optimizers.SGD()
    optimizer.build(sums)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0, worlds=[])

    @hvd.elastic.run
    def train(state: Any) -> None:
        state.worlds = [*state.worlds, hvd.size()]
        while state.step < STEPS:
            if state.step == LOST_AT and len(state.worlds) == 1 and hvd.rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            ones = hvd.grouped_allreduce([tf.ones_like(total) for total in sums])
            for total, one in zip(sums, ones, strict=True):
                total.assign_add(one)
            state.step += 1
            if state.step % COMMIT_EVERY == 0:
                state.commit()

    train(state)
    for total in sums:
        assert (total.numpy() == STEPS).all(), "a step was lost or done twice"
    if hvd.rank() == 0:
        print(f"DONE {state.step} {state.worlds}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
