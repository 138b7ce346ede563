"""The image with today's TensorFlow, from the inside: what it has of its own."""

from __future__ import annotations

import pytest

from tests.images.conftest import Sandboxes
from tests.images.sandbox import Sandbox


@pytest.fixture
def cpu_next(sandboxes: Sandboxes) -> Sandbox:
    return sandboxes("cpu-next")


def test_what_was_slimmed_away_is_not_missed(cpu_next: Sandbox) -> None:
    """Whatever a training script imports still loads, and a model can be saved and read again."""
    cpu_next.python(
        "import tensorflow as tf, tensorboard.main, horovod.tensorflow.keras, horovod.runner;"
        "import h5py, grpc, tensorflow.lite, numpy.random;"
        "from tensorboard.plugins import core;"
        "m = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)]);"
        "m.compile('sgd', tf.keras.losses.MeanSquaredError(), jit_compile=True);"
        "import numpy as np; m.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0);"
        "[m.save(f'/tmp/m{s}') or tf.keras.models.load_model(f'/tmp/m{s}')"
        " for s in ('.h5', '.keras')];"
        "m.export('/tmp/m')"
    )
    cpu_next.succeed("tensorboard", "--version")


def test_another_backend_of_keras_is_refused_by_name(cpu_next: Sandbox) -> None:
    make = (
        "import keras, horovod.keras as hvd; keras.backend.backend = lambda: 'jax';"
        "hvd.DistributedOptimizer(keras.optimizers.SGD())"
    )
    done = cpu_next.run("python3", "-c", make)
    assert done.returncode == 1
    assert "set KERAS_BACKEND=tensorflow before keras is imported" in done.stderr
