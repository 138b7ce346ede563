"""The program that ranks run when no command is given: checks that they can reach one another.

With the argument `bandwidth`, it checks and times an allreduce, for `helm test`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from typing import Any

TENSOR_MEBIBYTES = 32
MEASURED_ALLREDUCES = 10


def import_horovod() -> Any:
    """Return Horovod's module for the framework of this image: TensorFlow's, else PyTorch's.

    Exits with a message when the image has neither.
    """
    for framework in ("tensorflow", "torch"):
        if importlib.util.find_spec(framework):
            return importlib.import_module(f"horovod.{framework}")
    sys.exit("check: the image has neither TensorFlow nor PyTorch")


def check_all(hvd: Any) -> None:
    """Gather the numbers of all ranks and exit with a message when one is missing."""
    ranks = hvd.allgather_object(hvd.rank())
    if ranks != list(range(hvd.size())):
        sys.exit(f"check: gathered {ranks}, expected every rank from 0 to {hvd.size() - 1}")
    if hvd.rank() == 0:
        print(f"check: {hvd.size()} ranks are connected", flush=True)


def measure_bandwidth(hvd: Any) -> None:
    """Let rank 0 print the bandwidth of an allreduce in MiB/s.

    Exits with a message when the sum is wrong.
    """
    framework: Any = importlib.import_module(hvd.__name__.rpartition(".")[2])
    # Of float32.
    tensor = framework.ones(TENSOR_MEBIBYTES * 2**20 // 4)
    total = hvd.allreduce(tensor, op=hvd.Sum, name="warm-up")
    if float(total[0]) != hvd.size():
        sys.exit(f"bandwidth: the sum of a 1 from each of {hvd.size()} ranks is {float(total[0])}")
    began = time.monotonic()
    for _ in range(MEASURED_ALLREDUCES):
        hvd.allreduce(tensor, op=hvd.Sum, name="timed")
    seconds = (time.monotonic() - began) / MEASURED_ALLREDUCES
    if hvd.rank() == 0:
        # The bus bandwidth of nccl-tests (doc/PERFORMANCE.md): each rank sends and receives
        # 2 (n - 1) / n of the tensor.
        bus = TENSOR_MEBIBYTES / seconds * 2 * (hvd.size() - 1) / hvd.size()
        print(
            f"allreduce of {TENSOR_MEBIBYTES} MiB over {hvd.size()} ranks: "
            f"{seconds * 1000:.1f} ms, bus bandwidth {bus:.0f} MiB/s",
            flush=True,
        )


def main() -> None:
    hvd = import_horovod()
    hvd.init()
    if sys.argv[1:] == ["bandwidth"]:
        measure_bandwidth(hvd)
    else:
        check_all(hvd)


if __name__ == "__main__":
    main()
