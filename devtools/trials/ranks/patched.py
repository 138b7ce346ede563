"""Checks of features that only the patched Horovod has, alike on Keras 2 and 3."""

from __future__ import annotations

import tempfile
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np

from .helpers import expected_after, keras, model
from .plain import BATCH, assert_close, data


def a_saved_model_goes_on_where_it_was() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    mine.train_on_batch(*data(hvd.rank()))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.keras"
        mine.save(file)
        again = hvd.load_model(str(file))
        # And where there is no Horovod.
        assert type(keras.models.load_model(file).optimizer) is keras.optimizers.Adam
    again.train_on_batch(*data(hvd.rank()))
    assert int(again.optimizer.iterations) == 2
    wanted = expected_after(2, lambda: keras.optimizers.Adam(0.01))
    assert_close(again.get_weights(), wanted, 1e-4)


def momenta_follow_the_learning_rate() -> None:
    mine = model(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)))
    halve = hvd.callbacks.LearningRateScheduleCallback(
        0.1, multiplier=lambda epoch: 0.5, start_epoch=1
    )
    mine.fit(*data(hvd.rank()), batch_size=BATCH, verbose=0)
    momenta = [np.asarray(m) for m in mine.optimizer.momentums]
    seen: list[np.ndarray] = []
    mine.fit(*data(hvd.rank()), batch_size=BATCH, verbose=0, initial_epoch=1, epochs=2, callbacks=[
        halve, keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.extend(
            np.asarray(m) for m in mine.optimizer.momentums))])  # fmt: skip
    assert_close(seen, [m * 0.5 for m in momenta])
