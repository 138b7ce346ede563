"""Data, a model and comparisons for the checks of Keras."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from .plain import RATE, assert_close, assert_equal_on_ranks, data

assert_same_on_all_ranks = partial(assert_equal_on_ranks, hvd.allgather_object)
keras = tf.keras
IS_KERAS_3 = getattr(keras, "__version__", "2").startswith("3.")


def sgd() -> Any:
    return keras.optimizers.SGD(RATE)


def adam() -> Any:
    return keras.optimizers.Adam(0.01)


def whole() -> tuple[np.ndarray, np.ndarray]:
    """Return the batches of all ranks in one."""
    xs, ys = zip(*(data(rank) for rank in range(hvd.size())), strict=True)
    return np.concatenate(xs), np.concatenate(ys)


def model(seed: int = 1, **options: Any) -> Any:
    keras.utils.set_random_seed(seed)
    network = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)]
    )
    if options:
        network.compile(loss=keras.losses.MeanSquaredError(), **options)
    return network


def train(net: Any, steps: int = 1) -> None:
    """Train with the batch of this rank."""
    for _ in range(steps):
        net.train_on_batch(*data(hvd.rank()))


def expected_after(steps: int, make: Callable[[], Any] = sgd) -> list[np.ndarray]:
    """Return the weights of one process after training with the batches of all ranks in one."""
    reference = model(optimizer=make())
    for _ in range(steps):
        reference.train_on_batch(*whole())
    weights: list[np.ndarray] = reference.get_weights()
    return weights


def assert_trained_as_one(
    mine: Any, steps: int = 1, make: Callable[[], Any] = sgd, tolerance: float = 1e-5
) -> None:
    """Assert that the weights are those of one process, and the same on all ranks."""
    assert_close(mine.get_weights(), expected_after(steps, make), tolerance)
    assert_same_on_all_ranks(mine.get_weights())


def variables_of(optimizer: Any) -> list[Any]:
    variables = optimizer.variables
    return [
        np.asarray(variable) for variable in (variables() if callable(variables) else variables)
    ]


def assert_no_rank_steps_alone(mine: Any, scale: str) -> None:
    """Assert that all ranks skip a step that overflows on one of them, and halve the scale of the
    loss, which was 4.
    """
    x, y = data(hvd.rank())
    before = mine.get_weights()
    mine.train_on_batch(x, y * (np.float32(np.inf) if hvd.rank() == 0 else 1))
    assert_close(mine.get_weights(), before, 0)
    assert float(getattr(mine.optimizer, scale)) == 2.0
    mine.train_on_batch(x, y)
    assert_trained_as_one(mine)
