"""What scripts for Keras 2 call that Keras 3 has no longer, or has in another way."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

import horovod.keras as hvd_of_keras
import horovod.tensorflow.keras as hvd
import numpy as np

from .helpers import assert_same_on_all_ranks, expected_after, keras, model
from .plain import RATE, assert_close, data, raises


def the_learning_rate_is_called_lr() -> None:
    # In the optimizers of before 2.11: the later ones say that they pass this argument over.
    def make() -> Any:
        return keras.optimizers.legacy.SGD(lr=RATE, momentum=0.9)

    mine = model(optimizer=hvd.DistributedOptimizer(make()))
    for _ in range(3):
        mine.train_on_batch(*data(hvd.rank()))
    assert_close(mine.get_weights(), expected_after(3, make))
    for optimizer in (mine.optimizer, hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))):
        keras.backend.set_value(optimizer.lr, RATE / 2)
        assert float(optimizer.learning_rate) == keras.backend.get_value(optimizer.lr) == RATE / 2


def loss_scaling_skips_a_step_on_all_ranks_or_none() -> None:
    mine = model(optimizer=keras.mixed_precision.LossScaleOptimizer(
        hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), initial_scale=4.0))  # fmt: skip
    x, y = data(hvd.rank())
    before = mine.get_weights()
    mine.train_on_batch(x, y * (np.float32(np.inf) if hvd.rank() == 0 else 1))
    assert_close(mine.get_weights(), before, 0)
    assert float(mine.optimizer.loss_scale) == 2.0
    mine.train_on_batch(x, y)
    assert_close(mine.get_weights(), expected_after(1, lambda: keras.optimizers.SGD(RATE)))
    assert_same_on_all_ranks(mine.get_weights())


def what_is_not_supported_is_named() -> None:
    other = importlib.import_module("keras").optimizers.SGD(RATE)
    for horovod in (hvd, hvd_of_keras):
        raises(TypeError, "use tf.keras, or `import tf_keras as keras`",
               lambda module=horovod: module.DistributedOptimizer(other))  # fmt: skip
    scaled = keras.mixed_precision.LossScaleOptimizer(
        hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))
    )
    mine = model(optimizer=scaled)
    mine.train_on_batch(*data(hvd.rank()))
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.keras")
        mine.save(file)
        raises(NotImplementedError, "load the model with", lambda: hvd.load_model(file))
