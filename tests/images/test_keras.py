"""Horovod's Keras API in the images with TensorFlow, by the checks of tests/support/in_image."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devtools.common.repository import CHART
from tests.support.in_image.checks import (
    COMMON,
    OF_KERAS_2,
    OF_KERAS_3,
    WITH_TF_KERAS,
    assert_all_pass,
)
from tests.support.in_image.sandbox import OWN_UID, TWO_RANKS, TWO_RANKS_OVER_GLOO, Result, Sandbox

POD_FILES = CHART / "files"


def test_all_checks_of_keras_3_pass_over_mpi(cpu: Sandbox) -> None:
    assert OF_KERAS_3 in assert_all_pass(cpu, TWO_RANKS)


@pytest.mark.rare
def test_common_checks_of_keras_3_pass_over_gloo(cpu: Sandbox) -> None:
    assert_all_pass(cpu, TWO_RANKS_OVER_GLOO, *COMMON)


# `make try-tensorflow` selects those of checks: a new TensorFlow may have no tf_keras yet.
@pytest.mark.rare
def test_two_ranks_train_with_keras_2_over_mpi(cpu: Sandbox) -> None:
    assert OF_KERAS_2 in assert_all_pass(cpu, TWO_RANKS, **WITH_TF_KERAS)


# As Horovod's examples for Keras 2 and TensorFlow 2 broadcast the state of an optimizer.
KERAS_2 = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
optimizer = tf.keras.optimizers.Adam(learning_rate=0.1)
optimizer.build(model.trainable_variables)
hvd.broadcast_variables(optimizer.variables(), root_rank=0)
print("RESULT", tf.keras.layers.Dense.__module__.partition(".")[0])
"""


def test_script_for_keras_2_runs_with_one_variable_and_names_it_without(cpu: Sandbox) -> None:
    (cpu.folder / "keras_2_script.py").write_text(KERAS_2)
    command = (*TWO_RANKS, "python3", "/output/keras_2_script.py")
    printed = cpu.succeed(*command, uid=OWN_UID, **WITH_TF_KERAS)
    assert printed.count("RESULT tf_keras") == 2
    # One rank: the lines of two would mix.
    failed = cpu.run("mpirun", "-np", "1", *command[len(TWO_RANKS) :], uid=OWN_UID)
    assert "'list' object is not callable" in failed.stderr
    _, cause = as_master(failed)
    assert cause.endswith("needs TF_USE_LEGACY_KERAS=1 in `worker.env`)"), cause


TRAINS = """
import numpy, tensorflow as tf
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.zeros((4, 2)), numpy.zeros((4, 1)), verbose=0)
"""


def test_tensorflow_writes_no_notes_to_the_log(cpu: Sandbox) -> None:
    """On oneDNN, the CPU's instructions and missing GPUs, which each rank would repeat."""
    done = cpu.run("python3", "-c", TRAINS)
    assert done.returncode == 0
    assert done.stdout == ""
    assert as_master(done)[0] == ""


def as_master(done: Result) -> tuple[str, str]:
    """What the master of a run would write of a launcher's errors, and the cause that it tells."""
    program = (
        f"import sys; sys.path.insert(0, {str(POD_FILES)!r}); "
        "from hvd_pods.master.error_output import ErrorOutput; "
        "cause = ErrorOutput(sys.stdin.buffer, 2).find_cause([], 1); "
        "print(cause.text if cause else '')"
    )
    command = [sys.executable, "-I", "-c", program]
    judged = subprocess.run(command, input=done.stderr, capture_output=True, text=True, check=True)
    return judged.stderr, judged.stdout.strip()
