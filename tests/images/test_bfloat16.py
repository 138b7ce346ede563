"""What `tuning.bfloat16` sets reaches oneDNN through TensorFlow: read from oneDNN's own log."""

from __future__ import annotations

import pytest

from hvdchart.plan import rules
from tests.images.conftest import Sandboxes

TRAIN = """
import tensorflow as tf
images, layer = tf.ones([2, 16, 16, 8]), tf.keras.layers.Conv2D(8, 3)
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(layer(images))
assert tape.gradient(loss, layer.trainable_variables)[0].dtype == tf.float32
"""
# The images turn oneDNN on: TensorFlow leaves it out on CPUs without bfloat16.
VERBOSE = {"ONEDNN_VERBOSE": "1"}


@pytest.mark.parametrize("name", ["cpu", "cpu-2.15"])
@pytest.mark.parametrize(("asked", "allowed"), [({rules.FPMATH: "BF16"}, True), ({}, False)])
def test_onednn_computes_in_bfloat16_only_with_the_setting(
    sandboxes: Sandboxes, name: str, asked: dict[str, str], allowed: bool
) -> None:
    settings = [f"{key}={value}" for key, value in {**VERBOSE, **asked}.items()]
    log = sandboxes(name).succeed("env", *settings, "python3", "-c", TRAIN)
    done = [line for line in log.splitlines() if ",convolution," in line]
    assert {"forward" in line for line in done} == {True, False}, log
    assert {"fpmath:bf16" in line for line in done} == {allowed}, done
