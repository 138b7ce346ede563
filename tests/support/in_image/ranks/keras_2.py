"""Checks of calls in scripts for Keras 2 that Keras 3 lacks or has changed."""

from __future__ import annotations

import importlib
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import horovod.keras as hvd_of_keras
import horovod.tensorflow.keras as hvd

from .helpers import assert_no_rank_steps_alone, assert_trained_as_one, keras, model, sgd, train
from .plain import RATE, raises


def the_learning_rate_is_called_lr() -> None:
    # In the optimizers of versions before 2.11: later ones warn and ignore this argument.
    def make() -> Any:
        return keras.optimizers.legacy.SGD(lr=RATE, momentum=0.9)

    mine = model(optimizer=hvd.DistributedOptimizer(make()))
    train(mine, 3)
    assert_trained_as_one(mine, 3, make)
    for optimizer in (mine.optimizer, hvd.DistributedOptimizer(sgd())):
        keras.backend.set_value(optimizer.lr, RATE / 2)
        assert float(optimizer.learning_rate) == keras.backend.get_value(optimizer.lr) == RATE / 2


def loss_scaling_skips_a_step_on_all_ranks_or_none() -> None:
    mine = model(
        optimizer=keras.mixed_precision.LossScaleOptimizer(
            hvd.DistributedOptimizer(sgd()), initial_scale=4.0
        )
    )
    assert_no_rank_steps_alone(mine, "loss_scale")


def what_is_not_supported_is_named() -> None:
    other = importlib.import_module("keras").optimizers.SGD(RATE)
    for horovod in (hvd, hvd_of_keras):
        raises(
            TypeError,
            "use tf.keras, or `import tf_keras as keras`",
            partial(horovod.DistributedOptimizer, other),
        )
    scaled = keras.mixed_precision.LossScaleOptimizer(hvd.DistributedOptimizer(sgd()))
    mine = model(optimizer=scaled)
    train(mine)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.keras")
        mine.save(file)
        raises(NotImplementedError, "load the model with", lambda: hvd.load_model(file))
