"""Data, a model and comparisons for the checks of Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from .plain import data

keras = tf.keras
IS_KERAS_3 = getattr(keras, "__version__", "2").startswith("3.")


def whole() -> tuple[np.ndarray, np.ndarray]:
    """The batches of all ranks in one."""
    xs, ys = zip(*(data(rank) for rank in range(hvd.size())), strict=True)
    return np.concatenate(xs), np.concatenate(ys)


def model(seed: int = 1, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(seed)
    made = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)]
    )
    if options:
        made.compile(loss=keras.losses.MeanSquaredError(), **options)
    return made


def expected_after(steps: int, optimizer: Callable[[], Any]) -> list[np.ndarray]:
    """The weights that one process has after training with the batches of all ranks in one."""
    one = model(optimizer=optimizer())
    for _ in range(steps):
        one.train_on_batch(*whole())
    return one.get_weights()


def assert_same_on_all_ranks(values: Any) -> None:
    """Bit for bit."""
    mine = b"".join(np.ascontiguousarray(value).tobytes() for value in values)
    assert len(set(hvd.allgather_object(mine))) == 1, "the ranks differ"


def variables_of(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return [np.asarray(v) for v in (found() if callable(found) else found)]
