"""Checks of features that only Keras 3 has, and of features of Keras 2 that it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from .helpers import assert_same_on_all_ranks, expected_after, keras, model, whole
from .plain import BATCH, RATE, assert_close, data, raises


def loss_scaling_skips_a_step_on_all_ranks_or_none() -> None:
    def outer() -> Any:
        return keras.optimizers.LossScaleOptimizer(
            hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), initial_scale=4.0
        )

    def inner() -> Any:
        return hvd.DistributedOptimizer(
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=4.0)
        )

    for make in (outer, inner):
        mine = model(optimizer=make())
        x, y = data(hvd.rank())
        before = mine.get_weights()
        mine.train_on_batch(x, y * (np.float32(np.inf) if hvd.rank() == 0 else 1))
        assert_close(mine.get_weights(), before, 0)
        assert float(mine.optimizer.dynamic_scale) == 2.0
        mine.train_on_batch(x, y)
        assert_close(mine.get_weights(), expected_after(1, lambda: keras.optimizers.SGD(RATE)))
        assert_same_on_all_ranks(mine.get_weights())
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        mine = model(
            optimizer=hvd.DistributedOptimizer(
                keras.optimizers.SGD(RATE), backward_passes_per_step=2
            )
        )
        for _ in range(2):
            mine.train_on_batch(*data(hvd.rank()))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(mine.optimizer) is keras.optimizers.LossScaleOptimizer
    assert_close(
        mine.get_weights(), expected_after(1, lambda: keras.optimizers.SGD(2 * RATE)), 0.01
    )


def a_learning_rate_is_broadcast() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)))
    mine.optimizer.learning_rate = RATE * (1 + hvd.rank())
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    mine.fit(*data(hvd.rank()), batch_size=BATCH // 2, verbose=0, callbacks=[callback])
    assert_same_on_all_ranks(mine.get_weights())
    assert float(mine.optimizer.learning_rate) == RATE


def keras_accumulates_gradients() -> None:
    mine = model(
        optimizer=hvd.DistributedOptimizer(
            keras.optimizers.SGD(RATE, gradient_accumulation_steps=2)
        )
    )
    before = mine.get_weights()
    mine.train_on_batch(*data(hvd.rank()))
    assert_close(mine.get_weights(), before, 0)
    mine.train_on_batch(*data(hvd.rank()))
    assert_close(mine.get_weights(), expected_after(1, lambda: keras.optimizers.SGD(RATE)))


def a_wrapped_optimizer_keeps_its_state() -> None:
    schedule = Halving()
    first = model(optimizer=keras.optimizers.SGD(schedule, momentum=0.9))
    first.train_on_batch(*whole())
    wrapped = hvd.DistributedOptimizer(first.optimizer)
    assert int(wrapped.iterations) == 1
    assert wrapped._learning_rate is schedule
    first.compile(wrapped, "mse")
    first.train_on_batch(*data(hvd.rank()))
    assert_close(
        first.get_weights(),
        expected_after(2, lambda: keras.optimizers.SGD(Halving(), momentum=0.9)),
    )


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that Keras does not know by name."""

    def __call__(self, step: Any) -> Any:
        return RATE / (1.0 + tf.cast(step, tf.float32))

    def get_config(self) -> dict[str, Any]:
        return {}


def what_is_not_supported_is_named() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))
    for name in ("minimize", "compute_gradients", "get_gradients", "_aggregate_gradients"):
        raises(NotImplementedError, f"SGD.{name}() is an optimizer method of Keras 2",
               getattr(optimizer, name))  # fmt: skip
    raises(ValueError, "wrap it once", lambda: hvd.DistributedOptimizer(optimizer))
    raises(TypeError, "expected an optimizer of Keras 3", lambda: hvd.DistributedOptimizer("sgd"))
    twice = keras.optimizers.SGD(gradient_accumulation_steps=2)
    raises(ValueError, "set one of them",
           lambda: hvd.DistributedOptimizer(twice, backward_passes_per_step=2))  # fmt: skip
    raises(ValueError, "sparse_as_dense=True", sparse_passes)
    raises(ValueError, "no legacy optimizers", lambda: hvd.load_model("x.keras", legacy_opts=True))
    raises(TypeError, "set TF_USE_LEGACY_KERAS=1", lambda: hvd.DistributedOptimizer(of_tf_keras()))
    v1 = tf.compat.v1.train.GradientDescentOptimizer(RATE)
    raises(TypeError, "use horovod.tensorflow.DistributedOptimizer",
           lambda: hvd.DistributedOptimizer(v1))  # fmt: skip
    raises(ValueError, "no optimizer: compile it first", lambda: hvd.elastic.KerasState(model()))
    raises(NotImplementedError, "use those of horovod.tensorflow",
           tf.function(lambda: hvd.allreduce(np.ones(2)), autograph=False))  # fmt: skip
    mine = model(optimizer=optimizer, jit_compile=True)
    raises(NotImplementedError, "jit_compile=False", lambda: mine.train_on_batch(*data(0)))


def of_tf_keras() -> Any:
    """As an optimizer of Keras 2, which is a package of its own now."""
    return type("SGD", (), {"__module__": "tf_keras.src.optimizers.sgd"})()


def jit_compile_is_turned_off_with_a_warning() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), jit_compile=True)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mine.fit(*data(hvd.rank()), batch_size=BATCH, verbose=0, callbacks=[callback])
    assert any("going on with jit_compile=False" in str(w.message) for w in caught)
    assert_close(mine.get_weights(), expected_after(1, lambda: keras.optimizers.SGD(RATE)))


def sparse_passes() -> Any:
    net = keras.Sequential([keras.layers.Embedding(5, 2)])
    net.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), backward_passes_per_step=2), "mse"
    )
    return net.train_on_batch(np.array([[1, 2]]), np.ones((1, 2, 2), "float32"))
