"""Runs in the examples' image, on each rank: does what it is asked, until the other end closes.

    mpirun -np 2 python3 interleaved_ranks.py SOCKET PARTY NETWORKS

tests/bench/interleaved_training.py is the other end. NETWORKS is a JSON object: for each network of
benchmark.py the batch size of a rank and the size of its images. Each network has made two steps
before the rank connects. It is asked for a step by the name of a network, and answers with its
seconds, a line each.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from typing import Any

import horovod
import horovod.tensorflow as hvd
import tensorflow as tf
from benchmark import make_batch, make_image_model, make_step
from tensorflow import keras

# What changes the speed of a training that is otherwise the same.
PREFIXES = ("TF_", "OMP_", "KMP_", "MALLOC_", "LD_PRELOAD", "GLIBC_TUNABLES", "OMPI_MCA_mpi_yield")


class Network:
    """A network that trains on one batch, which stays in memory."""

    def __init__(self, name: str, batch_size: int, size: int) -> None:
        keras.utils.set_random_seed(hvd.rank())
        self._model = make_image_model(name, size)
        self._step = make_step(self._model)
        self._batch = make_batch(self._model, batch_size)

    def train(self) -> float:
        """Make a step; its seconds."""
        meet()
        began = time.perf_counter()
        float(self._step(*self._batch))
        return time.perf_counter() - began


def meet() -> None:
    """Wait until all ranks are here."""
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
    """Answer until nobody asks any more."""
    path, party, networks = sys.argv[1:]
    hvd.init()
    made = {name: Network(name, *sizes) for name, sizes in json.loads(networks).items()}
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
