"""The XLA operations of Horovod on TensorFlow. None of these tests needs a GPU."""

from __future__ import annotations

import pytest

from tests.support.in_image.sandbox import Sandbox

pytestmark = pytest.mark.patch("xla-operations.patch")

# Prints what a step calls that XLA translates, on a machine without a GPU. Only on one, XLA finds
# what is called, too.
TRANSLATED_BY_XLA = """
import re
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
step = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="x"), jit_compile=True)
describe = step.experimental_get_compiler_ir(tf.TensorSpec((4,), "{dtype}"))
text = describe(stage="hlo")
print(*sorted(set(re.findall(r'custom_call_target="(\\w+)"', text))))
"""
# Whether a model is still compiled by XLA when Horovod's callback has seen it.
IS_COMPILED_BY_XLA = """
import keras
import horovod.keras as hvd
hvd.init()
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
model.compile(optimizer, keras.losses.MeanSquaredError(), jit_compile=True)
callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
callback.set_model(model)
print(model.jit_compile)
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64"])
def test_xla_translates_an_allreduce(inside: Sandbox, dtype: str) -> None:
    """Into calls of Horovod, which only a process with a GPU can make."""
    program = TRANSLATED_BY_XLA.format(dtype=dtype)
    called = inside.succeed("python3", "-c", program, HOROVOD_ENABLE_XLA_OPS="1")
    assert called.splitlines()[-1] == "CallbackHVDAllreduce CallbackHVDAllreduceDone"


def test_xla_does_not_know_an_allreduce_that_nobody_asked_for(inside: Sandbox) -> None:
    program = TRANSLATED_BY_XLA.format(dtype="float32")
    done = inside.run("python3", "-c", program)
    assert done.returncode != 0
    assert "HorovodAllreduce" in done.stderr


@pytest.mark.parametrize(("enabled", "is_compiled"), [("1", True), ("0", False)])
def test_model_of_keras_is_compiled_by_xla_where_the_operations_are(
    inside: Sandbox, enabled: str, is_compiled: bool
) -> None:
    output = inside.succeed("python3", "-c", IS_COMPILED_BY_XLA, HOROVOD_ENABLE_XLA_OPS=enabled)
    assert output.split()[-1] == str(is_compiled)
