"""The ranks that train together, and how they tell each other something."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from typing import Any

from .arrays import numpy_module

# Bytes of a broadcast: new memory is slow, and this much is used again.
PIECE = 1 << 24


class Ranks:
    """This process alone; the subclasses are ranks that have found each other."""

    rank = 0
    size = 1
    local_rank = 0

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank. All ranks have to call this."""
        return [told]

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it. All ranks have to call this."""

    def broadcast(self, raw: memoryview | None, size: int, root: int) -> memoryview:
        """Return the bytes that `root` has, on all ranks, which all have to call this.

        `raw` is None, or ignored, on the other ranks. `size` is the number of bytes, alike on all.
        """
        if raw is None or self.rank != root:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):
                # Much of the time is that in which the kernel makes memory.
                memory.madvise(mmap.MADV_HUGEPAGE)
            raw = memoryview(memory)
        for at in range(0, size, PIECE):
            self.send(raw[at : at + PIECE], root)
        return raw


class HorovodRanks(Ranks):
    """Ranks of Horovod, with TensorFlow or PyTorch."""

    def __init__(self, hvd: Any, framework: str) -> None:
        self.hvd = hvd
        self.framework = framework
        self.rank = hvd.rank()
        self.size = hvd.size()
        self.local_rank = hvd.local_rank()

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank."""
        return [*self.hvd.allgather_object(told, name="keep.restore.steps")]

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it, by a broadcast of the rank's framework."""
        module: Any = sys.modules[self.framework]
        if self.framework == "torch":
            tensor = module.frombuffer(piece, dtype=module.uint8)
            self.hvd.broadcast_(tensor, root, name="keep.restore")
            return
        if self.rank == root:
            tensor = module.constant(numpy_module().frombuffer(piece, "uint8"))
        else:
            # What it has does not matter.
            tensor = module.zeros(len(piece), "uint8")
        received = self.hvd.broadcast(tensor, root, name="keep.restore")
        if self.rank != root:
            piece[:] = memoryview(received)


class TorchRanks(Ranks):
    """Ranks of torch.distributed, without Horovod."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.distributed = torch.distributed
        self.rank = self.distributed.get_rank()
        self.size = self.distributed.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank."""
        answers: list[Any] = [None] * self.size
        self.distributed.all_gather_object(answers, told)
        return answers

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it, over the GPUs where NCCL is the backend."""
        tensor = here = self.torch.frombuffer(piece, dtype=self.torch.uint8)
        if self.distributed.get_backend() == "nccl":
            tensor = here.cuda()
        self.distributed.broadcast(tensor, root)
        if tensor is not here and self.rank != root:
            here.copy_(tensor)


def find_ranks() -> Ranks:
    """Return the ranks that this process is one of: Horovod's, else those of torch.distributed.

    Without either, this process is alone. Raises RuntimeError where WORLD_SIZE says that it is not.
    """
    for name in ("tensorflow", "torch"):
        hvd: Any = sys.modules.get(f"horovod.{name}")
        if hvd is not None and hvd.is_initialized():
            return HorovodRanks(hvd, name)
    torch: Any = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return TorchRanks(torch)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Each would take itself for the only one, and write what the others write.
        raise RuntimeError(
            f"keep: this is one of {os.environ['WORLD_SIZE']} ranks, but neither Horovod, with "
            "TensorFlow or PyTorch, nor torch.distributed has begun: call hvd.init() or "
            "init_process_group() first; keep does not know the ranks of other libraries"
        )
    return Ranks()
