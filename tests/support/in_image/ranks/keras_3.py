"""Checks of features that only Keras 3 has, and of features of Keras 2 that it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from .helpers import (
    assert_no_rank_steps_alone,
    assert_same_on_all_ranks,
    assert_trained_as_one,
    keras,
    model,
    sgd,
    train,
    whole,
)
from .plain import BATCH, RATE, assert_close, data, raises


def loss_scaling_skips_a_step_on_all_ranks_or_none() -> None:
    def scaled(optimizer: Any) -> Any:
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0)

    for optimizer in (
        scaled(hvd.DistributedOptimizer(sgd())),
        hvd.DistributedOptimizer(scaled(sgd())),
    ):
        assert_no_rank_steps_alone(model(optimizer=optimizer), "dynamic_scale")
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        mine = model(optimizer=hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2))
        train(mine, 2)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(mine.optimizer) is keras.optimizers.LossScaleOptimizer
    assert_trained_as_one(mine, 1, lambda: keras.optimizers.SGD(2 * RATE), 0.01)


def a_learning_rate_is_broadcast() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(sgd()))
    mine.optimizer.learning_rate = RATE * (1 + hvd.rank())
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    mine.fit(*data(hvd.rank()), batch_size=BATCH // 2, verbose=0, callbacks=[callback])
    assert_same_on_all_ranks(mine.get_weights())
    assert float(mine.optimizer.learning_rate) == RATE


def keras_accumulates_gradients() -> None:
    accumulating = keras.optimizers.SGD(RATE, gradient_accumulation_steps=2)
    mine = model(optimizer=hvd.DistributedOptimizer(accumulating))
    before = mine.get_weights()
    train(mine)
    assert_close(mine.get_weights(), before, 0)
    train(mine)
    assert_trained_as_one(mine)


def a_wrapped_optimizer_keeps_its_state() -> None:
    def make() -> Any:
        return keras.optimizers.SGD(Halving(), momentum=0.9)

    first = model(optimizer=make())
    schedule = first.optimizer._learning_rate
    first.train_on_batch(*whole())
    wrapped = hvd.DistributedOptimizer(first.optimizer)
    assert int(wrapped.iterations) == 1
    assert wrapped._learning_rate is schedule
    first.compile(wrapped, "mse")
    train(first)
    assert_trained_as_one(first, 2, make)


class Halving(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule that Keras does not know by name."""

    def __call__(self, step: Any) -> Any:
        return RATE / (1.0 + tf.cast(step, tf.float32))

    def get_config(self) -> dict[str, Any]:
        return {}


def what_is_not_supported_is_named() -> None:
    optimizer = hvd.DistributedOptimizer(sgd())
    for name in ("minimize", "compute_gradients", "get_gradients", "_aggregate_gradients"):
        raises(
            NotImplementedError,
            f"SGD.{name}() is an optimizer method of Keras 2",
            getattr(optimizer, name),
        )
    raises(ValueError, "wrap it once", lambda: hvd.DistributedOptimizer(optimizer))
    raises(TypeError, "expected an optimizer of Keras 3", lambda: hvd.DistributedOptimizer("sgd"))
    twice = keras.optimizers.SGD(gradient_accumulation_steps=2)
    raises(
        ValueError,
        "set one of them",
        lambda: hvd.DistributedOptimizer(twice, backward_passes_per_step=2),
    )
    raises(ValueError, "sparse_as_dense=True", sparse_passes)
    raises(ValueError, "no legacy optimizers", lambda: hvd.load_model("x.keras", legacy_opts=True))
    raises(TypeError, "set TF_USE_LEGACY_KERAS=1", lambda: hvd.DistributedOptimizer(of_tf_keras()))
    v1 = tf.compat.v1.train.GradientDescentOptimizer(RATE)
    raises(
        TypeError,
        "use horovod.tensorflow.DistributedOptimizer",
        lambda: hvd.DistributedOptimizer(v1),
    )
    raises(ValueError, "no optimizer: compile it first", lambda: hvd.elastic.KerasState(model()))
    raises(
        NotImplementedError,
        "use those of horovod.tensorflow",
        tf.function(lambda: hvd.allreduce(np.ones(2)), autograph=False),
    )
    mine = model(optimizer=optimizer, jit_compile=True)
    raises(NotImplementedError, "jit_compile=False", lambda: mine.train_on_batch(*data(0)))


def of_tf_keras() -> Any:
    """Return an object like an optimizer of Keras 2, which is now a separate package."""
    return type("SGD", (), {"__module__": "tf_keras.src.optimizers.sgd"})()


def jit_compile_is_turned_off_with_a_warning() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(sgd()), jit_compile=True)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mine.fit(*data(hvd.rank()), batch_size=BATCH, verbose=0, callbacks=[callback])
    assert any("going on with jit_compile=False" in str(warning.message) for warning in caught)
    assert_trained_as_one(mine)


def sparse_passes() -> Any:
    net = keras.Sequential([keras.layers.Embedding(5, 2)])
    net.compile(hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2), "mse")
    return net.train_on_batch(np.array([[1, 2]]), np.ones((1, 2, 2), "float32"))
