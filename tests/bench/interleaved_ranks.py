"""Runs in the examples' image, on each rank: does what it is asked, until the other end closes.

    mpirun -np 2 python3 interleaved_ranks.py SOCKET PARTY NETWORKS

tests/bench/interleaved_training.py is the other end. NETWORKS is a JSON object: for each network of
benchmark.py the batch size of a rank and the size of its images; for gradients without a network
their type and the number of values in each; and for a name with a number alone, the values that
each rank adds and copies in memory. Each has made two steps before the rank connects. It is asked
for a step by a name, and answers with its seconds, a line each.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import horovod
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from benchmark import make_batch, make_image_model, make_step
from tensorflow import keras

# What changes the speed of a training that is otherwise the same.
PREFIXES = ("TF_", "OMP_", "KMP_", "MALLOC_", "LD_PRELOAD", "GLIBC_TUNABLES", "OMPI_MCA_mpi_yield")

# How often gradients are averaged for one figure.
ROUNDS = 5


class Network:
    """A network that trains on one batch, which stays in memory."""

    def __init__(self, name: str, batch_size: int, size: int) -> None:
        keras.utils.set_random_seed(hvd.rank())
        self._model = make_image_model(name, size)
        self._step = make_step(self._model)
        self._batch = make_batch(self._model, batch_size)

    def train(self) -> float:
        return seconds_of(lambda: float(self._step(*self._batch)))


class Gradients:
    """Computes gradients, of which nothing else is read, and averages them if there are others."""

    def __init__(self, kind: str, *sizes: int) -> None:
        made = [tf.Variable(tf.ones([size], kind)) for size in sizes]
        share = hvd.allreduce if hvd.size() > 1 else tf.identity

        @tf.function  # type: ignore[untyped-decorator]
        def step() -> tf.Tensor:
            shared = [share(each + tf.cast(1, kind)) for each in made]
            return tf.add_n([tf.cast(each[0], tf.float32) for each in shared])

        self._step = step

    def train(self) -> float:
        return median_seconds_of(lambda: float(self._step()))


class Memory:
    """Adds one tensor to another and copies the sum, which each rank has to do at least."""

    def __init__(self, numbers: int) -> None:
        self._arrays = [np.ones(numbers, np.float32) for _ in range(3)]

    def train(self) -> float:
        own, other, result = self._arrays
        return median_seconds_of(lambda: np.copyto(result, np.add(own, other, out=own)))


def seconds_of(step: Callable[[], object]) -> float:
    """Make a step when all ranks are here."""
    meet()
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def median_seconds_of(step: Callable[[], object]) -> float:
    return statistics.median(seconds_of(step) for _ in range(ROUNDS))


def make(name: str, wanted: Any) -> Network | Gradients | Memory:
    """What NETWORKS has under a name."""
    if not isinstance(wanted, list):
        return Memory(wanted)
    return Gradients(*wanted) if isinstance(wanted[0], str) else Network(name, *wanted)


def meet() -> None:
    hvd.allreduce(tf.zeros(1), name="meet")


def about(party: str) -> dict[str, Any]:
    """Who this is, and what must be alike where figures are compared."""
    variables = {
        name: value for name, value in os.environ.items() if value and name.startswith(PREFIXES)
    }
    alike = {
        "Python": platform.python_version(),
        "TensorFlow": tf.__version__,
        "Horovod": horovod.__version__,
        "variables": variables,
    }
    return {"party": party, "rank": hvd.rank(), "alike": alike}


def main() -> None:
    path, party, networks = sys.argv[1:]
    hvd.init()
    made = {name: make(name, wanted) for name, wanted in json.loads(networks).items()}
    for network in made.values():
        network.train()
        network.train()
    meet()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)

    def say(what: object) -> None:
        connection.sendall(json.dumps(what).encode() + b"\n")

    say(about(party))
    for line in connection.makefile("r"):
        say(made[line.strip()].train())


if __name__ == "__main__":
    main()
