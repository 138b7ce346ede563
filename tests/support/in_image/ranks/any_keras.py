"""Checks of features that work the same on Keras 2 and 3."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import horovod.keras as hvd_of_keras
import horovod.tensorflow as hvd_of_tensorflow
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from .helpers import (
    IS_KERAS_3,
    adam,
    assert_same_on_all_ranks,
    assert_trained_as_one,
    expected_after,
    keras,
    model,
    sgd,
    train,
    variables_of,
    whole,
)
from .plain import BATCH, assert_close, data


def an_optimizer_trains_as_one_process_with_all_batches() -> None:
    for make in (sgd, adam):
        # Horovod's own examples set this argument, which has no effect since TensorFlow 2.1.
        old = {"experimental_run_tf_function": False}
        mine = model(optimizer=hvd.DistributedOptimizer(make()), **old)
        train(mine, 3)
        assert_trained_as_one(mine, 3, make)


def horovod_keras_is_the_same() -> None:
    mine = model(optimizer=hvd_of_keras.DistributedOptimizer(sgd()))
    train(mine)
    assert_trained_as_one(mine)


def a_tape_averages_gradients_of_keras_variables() -> None:
    mine = model()
    reference = model()
    grads = []
    for net, (x, y) in ((mine, data(hvd.rank())), (reference, whole())):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x) - y))
        if net is mine:
            tape = hvd_of_tensorflow.DistributedGradientTape(tape)
        grads.append(tape.gradient(loss, net.trainable_variables))
    assert_close(*grads)
    hvd_of_tensorflow.broadcast_variables(mine.variables, root_rank=0)
    hvd_of_tensorflow.broadcast_variables(mine.variables, root_rank=0, inplace=True)
    assert_same_on_all_ranks(mine.get_weights())


def collectives_take_variables_of_keras() -> None:
    horovod = hvd_of_tensorflow
    kernels = [model(seed=rank).layers[0].kernel for rank in range(hvd.size())]
    values = [np.asarray(kernel) for kernel in kernels]
    mine = kernels[hvd.rank()]
    mean = np.mean(values, axis=0)
    for options, tolerance in (({}, 1e-5), ({"compression": horovod.Compression.fp16}, 1e-2)):
        assert_close([horovod.allreduce(mine, **options)], [mean], tolerance)
        assert_close(horovod.grouped_allreduce([mine], **options), [mean], tolerance)
    assert_close([horovod.allgather(mine)], [np.concatenate(values)])
    assert_close([horovod.broadcast(mine, root_rank=hvd.size() - 1)], [values[-1]])
    # An operation in place uses the variable's name, which must be the same on all ranks.
    kernels[0].assign(values[hvd.rank()])
    horovod.broadcast_([kernels[0]], root_rank=hvd.size() - 1)
    assert_close([kernels[0]], [values[-1]], 0)


def gradients_of_several_passes_are_sent_at_once() -> None:
    for average, rate in ((True, 0.1), (False, 0.2)):
        mine = model(
            optimizer=hvd.DistributedOptimizer(
                keras.optimizers.SGD(0.1),
                backward_passes_per_step=2,
                average_aggregated_gradients=average,
            )
        )
        before = mine.get_weights()
        train(mine)
        assert_close(mine.get_weights(), before, 0)
        for steps in (1, 2):
            # One pass of the first step has already run.
            train(mine, steps)
            assert_trained_as_one(mine, steps, partial(keras.optimizers.SGD, rate))
        assert int(mine.optimizer.iterations) == 4


def sparse_gradients_are_averaged() -> None:
    results = []
    for as_dense in (False, True):
        keras.utils.set_random_seed(1)
        net = keras.Sequential(
            [keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()]
        )
        net.compile(hvd.DistributedOptimizer(sgd(), sparse_as_dense=as_dense), "mse")
        words = np.array([[1, 2, 3 + hvd.rank()]] * 4)
        net.train_on_batch(words, np.ones((4, 4), "float32"))
        results.append(net.get_weights())
        assert_same_on_all_ranks(results[-1])
    assert_close(*results)
    table = results[0][0]
    keras.utils.set_random_seed(1)
    start = keras.Sequential([keras.layers.Embedding(50, 4)])
    start(np.array([[1]]))
    moved = np.flatnonzero(np.abs(table - start.get_weights()[0]).sum(axis=1))
    assert set(moved) == {1, 2, *range(3, 3 + hvd.size())}, moved


def groups_of_variables_lose_no_gradient() -> None:
    mine = model()
    for groups in ([[layer.kernel for layer in mine.layers]], 2):
        mine.set_weights(model().get_weights())
        mine.compile(hvd.DistributedOptimizer(sgd(), groups=groups), "mse")
        train(mine)
        assert_trained_as_one(mine)


def the_callbacks_broadcast_and_average() -> None:
    mine = model(seed=hvd.rank(), optimizer=hvd.DistributedOptimizer(adam()))
    seen: list[dict[str, float]] = []
    history = mine.fit(
        *data(hvd.rank()),
        batch_size=BATCH // 2,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(dict(logs))),
        ],
    )
    assert_same_on_all_ranks(mine.get_weights())
    assert_same_on_all_ranks(variables_of(mine.optimizer))
    assert_same_on_all_ranks([np.asarray(history.history["loss"])])
    assert [logs["loss"] for logs in seen] == history.history["loss"]


def a_local_variable_is_not_broadcast() -> None:
    mine = model(seed=hvd.rank(), optimizer=keras.optimizers.SGD(0.0))
    kernels = [layer.kernel for layer in mine.layers]
    before = np.asarray(kernels[0])
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[kernels[0]])
    mine.fit(*data(hvd.rank()), verbose=0, callbacks=[callback])
    assert_close([kernels[0]], [before], 0)
    assert_same_on_all_ranks([np.asarray(kernels[1])])


def local_layers_keep_their_gradients() -> None:
    mine = model()
    optimizer = hvd_of_keras.PartialDistributedOptimizer(
        sgd(), local_layers=mine.layers[0], scale_local_gradients=False
    )
    mine.compile(optimizer, "mse")
    alone = model(optimizer=sgd())
    for net in (mine, alone):
        train(net)
    assert_close(mine.layers[0].get_weights(), alone.layers[0].get_weights())
    assert_close(mine.layers[1].get_weights(), expected_after(1)[2:])


def the_learning_rate_warms_up_and_follows_a_schedule() -> None:
    mine: Any
    rates: list[float] = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rates.append(float(mine.optimizer.learning_rate))
    )
    mine = model(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)))
    history = mine.fit(
        *data(hvd.rank()),
        batch_size=BATCH // 2,
        epochs=4,
        verbose=0,
        callbacks=[
            hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2),
            hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5, start_epoch=3),
            watch,
        ],
    )
    size = hvd.size()
    warm = [0.1 / size * (step / 2 * (size - 1) / 2 + 1) for step in (1, 2, 3, 4)]
    assert_close([rates], [[*warm, 0.1, 0.1, 0.05, 0.05]])
    assert_close([history.history["lr"]], [[warm[1], 0.1, 0.1, 0.05]])


def a_model_saved_as_hdf5_goes_on_where_it_was() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(adam()))
    train(mine)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.h5"
        mine.save(file)
        again = hvd.load_model(str(file))
    train(again)
    assert_same_on_all_ranks(again.get_weights())
    assert int(again.optimizer.iterations) == 2
    if not IS_KERAS_3:  # which does not read an optimizer's moments from HDF5
        assert_close(again.get_weights(), expected_after(2, adam))


def elastic_state_is_saved_restored_and_synchronized() -> None:
    mine = model(seed=hvd.rank(), optimizer=hvd.DistributedOptimizer(adam()))
    if not IS_KERAS_3:
        train(mine)
    elif hvd.rank() == 0:
        # As on a rank that trained before, beside a rank that joins.
        mine.optimizer.build(mine.trainable_variables)
    state = hvd.elastic.KerasState(mine, epoch=hvd.rank())
    state.sync()
    assert state.epoch == 0
    assert_same_on_all_ranks(mine.get_weights())
    assert_same_on_all_ranks(variables_of(mine.optimizer))
    saved = [mine.get_weights(), variables_of(mine.optimizer)]
    train(mine)
    state.epoch = 5
    state.restore()
    assert_close(mine.get_weights(), saved[0], 0)
    assert_close(variables_of(mine.optimizer), saved[1], 0)
    assert state.epoch == 0
    commits: list[int] = []
    state.commit = lambda: commits.append(int(state.batch))
    state.batch = 0
    mine.fit(
        *data(hvd.rank()),
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=[
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
        ],
    )
    assert (state.epoch, commits) == (2, [1, 3, 0, 1, 3, 0]), (state.epoch, commits)


def batch_normalization_sees_the_batches_of_all_ranks() -> None:
    synced = hvd_of_tensorflow.SyncBatchNormalization(momentum=0.5)
    plain = keras.layers.BatchNormalization(momentum=0.5)
    got = synced(data(hvd.rank())[0], training=True)
    wanted = plain(whole()[0], training=True)
    start = hvd.rank() * BATCH
    assert_close([got], [wanted[start : start + BATCH]])
    assert_close([synced.moving_mean], [plain.moving_mean])
    assert_same_on_all_ranks([np.asarray(synced.moving_variance)])


def bfloat16_layers_train() -> None:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        mine = model(optimizer=hvd.DistributedOptimizer(sgd()))
        train(mine)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert_trained_as_one(mine, tolerance=0.03)


def sessions_with_hooks_broadcast() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("v", initializer=float(hvd.rank() + 1))
        v1.train.get_or_create_global_step()
        hook = hvd_of_tensorflow.BroadcastGlobalVariablesHook(0)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert session.run(variable) == 1.0


def a_saved_model_goes_on_where_it_was() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(adam()))
    train(mine)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.keras"
        mine.save(file)
        again = hvd.load_model(str(file))
        # The file also loads without Horovod.
        assert type(keras.models.load_model(file).optimizer) is keras.optimizers.Adam
    train(again)
    assert int(again.optimizer.iterations) == 2
    assert_close(again.get_weights(), expected_after(2, adam), 1e-4)


def momenta_follow_the_learning_rate() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    halve = hvd.callbacks.LearningRateScheduleCallback(
        0.1, multiplier=lambda epoch: 0.5, start_epoch=1
    )
    mine.fit(*data(hvd.rank()), batch_size=BATCH, verbose=0)
    momenta = [np.asarray(m) for m in mine.optimizer.momentums]
    seen: list[np.ndarray] = []
    mine.fit(
        *data(hvd.rank()),
        batch_size=BATCH,
        verbose=0,
        initial_epoch=1,
        epochs=2,
        callbacks=[
            halve,
            keras.callbacks.LambdaCallback(
                on_train_batch_begin=lambda batch, logs: seen.extend(
                    np.asarray(m) for m in mine.optimizer.momentums
                )
            ),
        ],
    )
    assert_close(seen, [m * 0.5 for m in momenta])
