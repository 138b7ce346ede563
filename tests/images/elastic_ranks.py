"""An elastic training of two ranks, of which the first one dies once. Run by horovodrun.

    elastic_ranks.py FRAMEWORK

FRAMEWORK is tensorflow or torch. The last line that rank 0 prints is DONE, the number of steps, and
how many ranks there were each time that the training began.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import Mock

STEPS = 60
COMMIT_EVERY = 10
LOST_AT = 33


class Training(NamedTuple):
    """What a framework has of its own. The totals are the weights of a model, at first zero."""

    hvd: Any
    totals: list[Any]
    make_state: Callable[..., Any]
    ones_like: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    error: Exception  # that does not come from Horovod


def tensorflow() -> Training:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    layer = tf.keras.layers.Dense(10, kernel_initializer="zeros")
    model = tf.keras.Sequential([tf.keras.Input((100,)), layer])
    totals = model.trainable_variables
    optimizer = tf.keras.optimizers.SGD()
    optimizer.build(totals)

    def make_state(**more: Any) -> Any:
        return hvd.elastic.TensorFlowKerasState(model, optimizer, **more)

    def add(total: Any, share: Any) -> None:
        total.assign_add(share)

    full = tf.errors.UnknownError(None, None, "no space left on device")
    return Training(hvd, totals, make_state, tf.ones_like, add, full)


def torch() -> Training:
    import horovod.torch as hvd
    import torch

    model = torch.nn.Linear(100, 10).requires_grad_(False)
    totals = [torch.nn.init.zeros_(total) for total in model.parameters()]
    optimizer = torch.optim.SGD(totals, 0.1)

    def make_state(**more: Any) -> Any:
        return hvd.elastic.TorchState(model, optimizer, **more)

    full = RuntimeError("no space left on device")
    return Training(hvd, totals, make_state, torch.ones_like, torch.Tensor.add_, full)


def check_other_errors(training: Training) -> None:
    """An error that is none of Horovod's ends the training as an error."""

    @training.hvd.elastic.run  # type: ignore[untyped-decorator]
    def train(state: Any) -> None:
        raise training.error

    try:
        train(Mock())
    except type(training.error):
        return
    raise AssertionError("the error was lost, and the training counts as finished")


def main() -> None:
    training = {"tensorflow": tensorflow, "torch": torch}[sys.argv[1]]()
    hvd = training.hvd
    totals = training.totals
    check_other_errors(training)
    hvd.init()

    @hvd.elastic.run  # type: ignore[untyped-decorator]
    def train(state: Any) -> None:
        state.worlds = [*state.worlds, hvd.size()]
        while state.step < STEPS:
            if state.step == LOST_AT and len(state.worlds) == 1 and hvd.rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            ones = hvd.grouped_allreduce([training.ones_like(total) for total in totals])
            for total, share in zip(totals, ones, strict=True):
                training.add(total, share)
            state.step += 1
            if state.step % COMMIT_EVERY == 0:
                state.commit()

    state = training.make_state(step=0, worlds=[])
    train(state)
    for total in totals:
        assert (total.numpy() == STEPS).all(), "a step was lost or done twice"
    if hvd.rank() == 0:
        print(f"DONE {state.step} {state.worlds}", flush=True)


if __name__ == "__main__":
    main()
