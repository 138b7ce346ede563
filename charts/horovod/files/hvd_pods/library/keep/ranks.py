"""The ranks that train together, and how they tell each other something."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from typing import Any, Mapping

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

    def deliver(self, sent: Mapping[int, memoryview], received: Mapping[int, memoryview]) -> None:
        """Send bytes to other ranks, and fill memory with those that others send to this one.

        Both are by the other rank, and of the size that the other rank has. All ranks have to call
        this.
        """
        told = self.gather({rank: bytes(raw) for rank, raw in sent.items()})
        for rank, memory in received.items():
            memory[:] = told[rank][self.rank]

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
    """Ranks of torch.distributed, without Horovod, in this group."""

    def __init__(self, torch: Any, group: Any = None) -> None:
        self.group = group
        self.torch = torch
        self.distributed = torch.distributed
        self.rank = self.distributed.get_rank()
        self.size = self.distributed.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))

    def gather(self, told: Any) -> list[Any]:
        """Return what each rank tells, by rank."""
        answers: list[Any] = [None] * self.size
        self.distributed.all_gather_object(answers, told, group=self.group)
        return answers

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with what `root` has in it, over the GPUs where NCCL is the backend."""
        tensor = here = self.torch.frombuffer(piece, dtype=self.torch.uint8)
        if self.distributed.get_backend(self.group) == "nccl":
            tensor = here.cuda()
        self.distributed.broadcast(tensor, root, group=self.group)
        if tensor is not here and self.rank != root:
            here.copy_(tensor)

    def deliver(self, sent: Mapping[int, memoryview], received: Mapping[int, memoryview]) -> None:
        """Send bytes to other ranks, and fill memory with those that others send to this one."""
        if self.group is None:
            super().deliver(sent, received)
            return
        longest = max(map(len, [*sent.values(), *received.values()]), default=0)
        for at in range(0, longest, PIECE):
            begun = [
                call(self._piece(memory, at), rank, group=self.group)
                for call, memories in (
                    (self.distributed.isend, sent),
                    (self.distributed.irecv, received),
                )
                for rank, memory in memories.items()
                if at < len(memory)
            ]
            for each in begun:
                each.wait()

    def _piece(self, memory: memoryview, at: int) -> Any:
        return self.torch.frombuffer(memory[at : at + PIECE], dtype=self.torch.uint8)


# Groups in which the ranks of a sharded state tell each other something, in memory of the CPU and
# beside what the training tells, by the group of all ranks.
_groups: dict[Any, Any] = {}


def find_sharded_ranks() -> Ranks:
    """Return the ranks of torch.distributed, in a group of their own.

    All ranks have to call this. Raises RuntimeError where torch.distributed has not begun.
    """
    torch: Any = sys.modules["torch"]
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        raise RuntimeError(
            "keep: a sharded state needs torch.distributed: call init_process_group() first"
        )
    everybody = distributed.group.WORLD
    if everybody not in _groups:
        _groups.clear()
        _groups[everybody] = distributed.new_group(backend="gloo")
    return TorchRanks(torch, _groups[everybody])


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
