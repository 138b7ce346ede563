"""Measures the allreduce of float32 arrays, from 1 KiB to 64 MiB, over all ranks of a run.

    torchrun --nproc-per-node 2 allreduce.py
    mpirun -np 2 python allreduce.py --framework mpi
    hvdchart run allreduce.py --image IMAGE

For each size rank 0 prints the time of one allreduce, the mean of ten rounds with its 95 %
interval, and the bandwidth of each rank's link, 2 (n - 1) / n times the size for each allreduce of
n ranks.
The last line is `RESULT` and a JSON object. Exit status: 0 if all sums were right, else 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

ROUNDS = 10
# Student's t for an interval of 95 % and ROUNDS - 1 degrees of freedom.
T95 = 2.262
KIB = 1 << 10
MIB = 1 << 20
# What is measured, in bytes.
SIZES = (KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
# Takes an array, and returns a function that sums it in place over all ranks.
Prepare = Callable[[array], Callable[[], Any]]
# This rank, the number of ranks, how to prepare a sum, and how to leave.
Joined = tuple[int, int, Prepare, Callable[[], None]]


def join_torch() -> Joined:
    """Join the other ranks over PyTorch's Gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    # Before PyTorch 2.8, a process group that is destroyed may wait for a tensor that is freed in
    # the same moment, for ever (pytorch#154976).
    kept = []

    def prepare(numbers: array) -> Callable[[], Any]:
        kept.append(torch.frombuffer(numbers, dtype=torch.float32))
        return partial(dist.all_reduce, kept[-1])

    return dist.get_rank(), dist.get_world_size(), prepare, dist.destroy_process_group


def join_mpi() -> Joined:
    """Join the other ranks over MPI."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def prepare(numbers: array) -> Callable[[], Any]:
        return partial(world.Allreduce, MPI.IN_PLACE, numbers)

    return world.Get_rank(), world.Get_size(), prepare, lambda: None


# Of each framework, the module that it needs and how to join.
JOIN = {"torch": ("torch", join_torch), "mpi": ("mpi4py", join_mpi)}


def measure(prepare: Prepare, ranks: int, size: int) -> list[float]:
    """Return the seconds of an allreduce of `size` bytes, for each round.

    All ranks must call it together. Raises ArithmeticError if a sum is wrong.
    """
    numbers = array("f", [1.0]) * (size // 4)
    reduce = prepare(numbers)
    meet = prepare(array("f", [0.0]))
    reduce()
    if numbers.count(ranks) != len(numbers):
        raise ArithmeticError(f"the sum of {size} bytes is wrong")
    # Sums of zeros never overflow.
    memoryview(numbers).cast("B")[:] = bytes(size)
    # A round of small arrays repeats the sum, because one takes microseconds.
    repeats = max(1, min(50, (16 * MIB) // size))
    seconds = []
    for _ in range(ROUNDS):
        # All ranks begin together.
        meet()
        begin = time.perf_counter()
        for _ in range(repeats):
            reduce()
        seconds.append((time.perf_counter() - begin) / repeats)
    return seconds


def main() -> int:
    """Measure all sizes and print the figures. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--framework", choices=JOIN, help="default: the first that is installed")
    options = parser.parse_args()
    installed = {}
    for name, (module, join) in JOIN.items():
        if importlib.util.find_spec(module):
            installed[name] = join
    name = options.framework or next(iter(installed), None)
    if name not in installed:
        print(f"{name or 'PyTorch or mpi4py'} is not installed in this image", file=sys.stderr)
        return 1
    rank, ranks, prepare, leave = installed[name]()
    if rank == 0:
        print(f"{name}, {ranks} ranks\n{'size':>9} {'time':>22} {'bandwidth':>13}", flush=True)
    rows = []
    for size in SIZES:
        seconds = measure(prepare, ranks, size)
        mean = statistics.mean(seconds)
        # Half the width of the interval.
        half = T95 * statistics.stdev(seconds) / len(seconds) ** 0.5
        bandwidth = 2 * (ranks - 1) / ranks * size / mean
        row = {"bytes": size, "us": mean * 1e6, "half": half * 1e6, "MBps": bandwidth / 1e6}
        rows.append({key: round(value, 1) for key, value in row.items()})
        if rank == 0:
            print(
                f"{size // KIB:>5} KiB {mean * 1e6:>10.1f} ± {half * 1e6:>7.1f} µs"
                f" {bandwidth / 1e6:>8.1f} MB/s",
                flush=True,
            )
    if rank == 0:
        result = {"framework": name, "ranks": ranks, "rows": rows}
        print(f"RESULT {json.dumps(result)}", flush=True)
    leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
