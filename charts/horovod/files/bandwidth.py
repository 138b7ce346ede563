"""An allreduce over all ranks, checked and timed; rank 0 prints the bandwidth."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

from check import framework

MEBIBYTES = 32
ROUNDS = 10


def ones(hvd: Any) -> Any:
    """A tensor of MEBIBYTES, float32 ones, of the framework at hand."""
    return importlib.import_module(hvd.__name__.rpartition(".")[2]).ones(MEBIBYTES * 2**20 // 4)


def main() -> None:
    """Exit with a message when the sum is not what it must be."""
    hvd = framework()
    hvd.init()
    tensor = ones(hvd)
    total = hvd.allreduce(tensor, op=hvd.Sum, name="warm-up")
    if float(total[0]) != hvd.size():
        sys.exit(f"bandwidth: {hvd.size()} ranks of ones add up to {float(total[0])}")
    began = time.monotonic()
    for _ in range(ROUNDS):
        hvd.allreduce(tensor, op=hvd.Sum, name="timed")
    seconds = (time.monotonic() - began) / ROUNDS
    if hvd.rank() == 0:
        # Each byte crosses the slowest link twice but for each rank's own share of it.
        bus = MEBIBYTES / seconds * 2 * (hvd.size() - 1) / hvd.size()
        print(
            f"allreduce of {MEBIBYTES} MiB over {hvd.size()} ranks: {seconds * 1000:.1f} ms, "
            f"bus bandwidth {bus:.0f} MiB/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
