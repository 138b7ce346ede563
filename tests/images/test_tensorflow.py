"""The images with TensorFlow for CPUs, from the inside, and what a build refuses."""

from __future__ import annotations

import pytest

from hvdchart.plan import rules
from images.builder.build import BuiltImage, build_image
from tests.images.slimmed import KERAS_3
from tests.support.in_image.sandbox import Sandbox


@pytest.fixture
def built(cpu: Sandbox, monkeypatch: pytest.MonkeyPatch) -> BuiltImage:
    """An image that was built, where nothing may be built any more."""

    def refuse(*_: object) -> None:
        raise AssertionError("it was built again")

    monkeypatch.setattr(type(cpu.image.engine), "build", refuse)
    return cpu.image


def test_removed_files_are_not_needed(cpu: Sandbox) -> None:
    cpu.python(KERAS_3)
    cpu.succeed("tensorboard", "--version")


def test_onednn_is_on(cpu: Sandbox) -> None:
    """TensorFlow leaves it off on some CPUs."""
    assert cpu.succeed("printenv", "TF_ENABLE_ONEDNN_OPTS") == "1\n"


def test_other_keras_backend_is_an_error(cpu: Sandbox) -> None:
    make = (
        "import keras, horovod.keras as hvd; keras.backend.backend = lambda: 'jax';"
        "hvd.DistributedOptimizer(keras.optimizers.SGD())"
    )
    done = cpu.run("python3", "-c", make)
    assert done.returncode == 1
    assert "set KERAS_BACKEND=tensorflow before keras is imported" in done.stderr


def test_modules_that_workers_import_leave_one_thread_after_a_fork(cpu: Sandbox) -> None:
    """The warm process does not fork with more."""
    count = (
        "import importlib, os\n"
        "names = os.environ['HVD_PRELOAD'].split()\n"
        "for name in names: importlib.import_module(name)\n"
        "if os.fork() == 0: os._exit(0)\n"
        "print(names, len(os.listdir('/proc/self/task')))"
    )
    assert cpu.python(count) == "['tensorflow', 'horovod.tensorflow'] 1\n"


def test_second_build_builds_nothing(built: BuiltImage) -> None:
    assert build_image("cpu").key == built.key


def test_earlier_build_is_kept_when_another_state_of_the_tree_got_the_reference(
    built: BuiltImage,
) -> None:
    built.engine.remove(built.reference)
    assert build_image("cpu").key == built.key


TRAIN = """
import tensorflow as tf
images, layer = tf.ones([2, 16, 16, 8]), tf.keras.layers.Conv2D(8, 3)
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(layer(images))
assert tape.gradient(loss, layer.trainable_variables)[0].dtype == tf.float32
"""


@pytest.mark.parametrize(("asked", "allowed"), [({rules.FPMATH: "BF16"}, True), ({}, False)])
def test_onednn_computes_in_bfloat16_only_with_the_setting(
    cpu: Sandbox, asked: dict[str, str], allowed: bool
) -> None:
    """What `tuning.bfloat16` sets reaches oneDNN: read from oneDNN's own log."""
    settings = [f"{key}={value}" for key, value in asked.items()]
    log = cpu.succeed("env", "ONEDNN_VERBOSE=1", *settings, "python3", "-c", TRAIN)
    done = [line for line in log.splitlines() if ",convolution," in line]
    assert {"forward" in line for line in done} == {True, False}, log
    assert {"fpmath:bf16" in line for line in done} == {allowed}, done
