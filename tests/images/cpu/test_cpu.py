"""The image with today's TensorFlow, from the inside: what it has of its own."""

from __future__ import annotations

from devtools.trials.sandbox import Sandbox
from tests.images.slimmed import KERAS_3


def test_removed_files_are_not_needed(cpu: Sandbox) -> None:
    cpu.python(KERAS_3)
    cpu.succeed("tensorboard", "--version")


def test_onednn_is_on_also_where_tensorflow_leaves_it_off(cpu: Sandbox) -> None:
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
