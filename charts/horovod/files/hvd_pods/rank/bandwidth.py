"""Checks and times an allreduce over all ranks; rank 0 prints the bandwidth."""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

# In place of this folder, whose modules may have the names of others.
sys.path[0] = os.path.abspath(__file__).rsplit("/", 3)[0]
from hvd_pods.rank.check import import_horovod

TENSOR_MEBIBYTES = 32
ROUNDS = 10


def main() -> None:
    """Print the bandwidth, or exit with a message when the sum is wrong."""
    hvd = import_horovod()
    hvd.init()
    framework: Any = importlib.import_module(hvd.__name__.rpartition(".")[2])
    # Of float32.
    tensor = framework.ones(TENSOR_MEBIBYTES * 2**20 // 4)
    total = hvd.allreduce(tensor, op=hvd.Sum, name="warm-up")
    if float(total[0]) != hvd.size():
        sys.exit(f"bandwidth: the sum of a 1 from each of {hvd.size()} ranks is {float(total[0])}")
    began = time.monotonic()
    for _ in range(ROUNDS):
        hvd.allreduce(tensor, op=hvd.Sum, name="timed")
    seconds = (time.monotonic() - began) / ROUNDS
    if hvd.rank() == 0:
        # The bus bandwidth of nccl-tests (doc/PERFORMANCE.md): each rank sends and receives
        # 2 (n - 1) / n of the tensor.
        bus = TENSOR_MEBIBYTES / seconds * 2 * (hvd.size() - 1) / hvd.size()
        print(
            f"allreduce of {TENSOR_MEBIBYTES} MiB over {hvd.size()} ranks: "
            f"{seconds * 1000:.1f} ms, bus bandwidth {bus:.0f} MiB/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
