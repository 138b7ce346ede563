"""The ranks that train together, and how they communicate."""

from __future__ import annotations

import contextlib
import functools
import importlib
import mmap
import os
import pickle
import sys
from typing import Any, Mapping

from .arrays import numpy_module

# Bytes of a broadcast: new memory is slow, and this much is used again.
BROADCAST_BYTES = 1 << 24
# JAX compiles what it sends for each size: there are few that are multiples of this many bytes.
SENT_MULTIPLE_BYTES = 1 << 16


class Ranks:
    """This process alone; the subclasses are ranks that have found each other."""

    rank = 0
    size = 1
    local_rank = 0
    # Whether a thread can tell something beside what the training tells.
    is_beside = True

    def gather(self, item: Any) -> list[Any]:
        """Return the value of each rank, by rank. All ranks must call this."""
        return [item]

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with the piece of `root`. All ranks must call this."""

    def deliver(self, sent: Mapping[int, memoryview], received: Mapping[int, memoryview]) -> None:
        """Send bytes to other ranks, and fill memory with the bytes that others send here.

        The keys of both are the other ranks, and the sizes are equal on both ranks. All ranks must
        call this.
        """
        gathered = self.gather({rank: bytes(raw) for rank, raw in sent.items()})
        for rank, memory in received.items():
            memory[:] = gathered[rank][self.rank]

    def broadcast(self, raw: memoryview | None, size: int, root: int) -> memoryview:
        """Return the bytes of `root` on all ranks, which must all call this.

        `raw` is None, or ignored, on the other ranks. `size` is the number of bytes, equal on all
        ranks.
        """
        if raw is None or self.rank != root:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):
                # Much of the time is that in which the kernel makes memory.
                memory.madvise(mmap.MADV_HUGEPAGE)
            raw = memoryview(memory)
        for at in range(0, size, BROADCAST_BYTES):
            self.send(raw[at : at + BROADCAST_BYTES], root)
        return raw


class HorovodRanks(Ranks):
    """Ranks of Horovod, with TensorFlow or PyTorch."""

    def __init__(self, hvd: Any, framework: str) -> None:
        self.hvd = hvd
        self.framework = framework
        self.rank = hvd.rank()
        self.size = hvd.size()
        self.local_rank = hvd.local_rank()

    def gather(self, item: Any) -> list[Any]:
        """Return the value of each rank, by rank."""
        return [*self.hvd.allgather_object(item, name="keep.restore.steps")]

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with the piece of `root`, by a broadcast of the rank's framework."""
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

    def gather(self, item: Any) -> list[Any]:
        """Return the value of each rank, by rank."""
        gathered: list[Any] = [None] * self.size
        self.distributed.all_gather_object(gathered, item, group=self.group)
        return gathered

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with the piece of `root`, over the GPUs if NCCL is the backend."""
        tensor = here = self.torch.frombuffer(piece, dtype=self.torch.uint8)
        if self.distributed.get_backend(self.group) == "nccl":
            tensor = here.cuda()
        self.distributed.broadcast(tensor, root, group=self.group)
        if tensor is not here and self.rank != root:
            here.copy_(tensor)

    def deliver(self, sent: Mapping[int, memoryview], received: Mapping[int, memoryview]) -> None:
        """Send bytes to other ranks, and fill memory with the bytes that others send here."""
        if self.group is None:
            super().deliver(sent, received)
            return
        longest = max(map(len, [*sent.values(), *received.values()]), default=0)
        for at in range(0, longest, BROADCAST_BYTES):
            begun = [
                call(self._piece(memory, at), rank, group=self.group)
                for call, memories in (
                    (self.distributed.isend, sent),
                    (self.distributed.irecv, received),
                )
                for rank, memory in memories.items()
                if at < len(memory)
            ]
            for transfer in begun:
                transfer.wait()

    def _piece(self, memory: memoryview, offset: int) -> Any:
        return self.torch.frombuffer(
            memory[offset : offset + BROADCAST_BYTES], dtype=self.torch.uint8
        )


class JaxRanks(Ranks):
    """Ranks of jax.distributed, which communicate over the network of the training's arrays."""

    is_beside = False

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self.tools = importlib.import_module("jax.experimental.multihost_utils")
        self.rank = jax.process_index()
        self.size = jax.process_count()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))

    def gather(self, item: Any) -> list[Any]:
        """Return the value of each rank, by rank."""
        if self.size == 1:
            return [item]
        words = pickle.dumps(item)
        longest = self._gather(numpy_module().array([len(words)])).max()
        padded = words.ljust(-(-int(longest) // SENT_MULTIPLE_BYTES) * SENT_MULTIPLE_BYTES, b"\0")
        # What follows the words is not read.
        return [pickle.loads(data) for data in self._gather(_as_array(padded))]  # noqa: S301

    def _gather(self, array: Any) -> Any:
        return self.tools.process_allgather(array)

    def send(self, piece: memoryview, root: int) -> None:
        """Fill a piece with the piece of `root`, over the first device of each process."""
        sent = self.tools.broadcast_one_to_all(_as_array(piece), is_source=self.rank == root)
        if self.rank != root:
            piece[:] = memoryview(sent)

    def deliver(self, sent: Mapping[int, memoryview], received: Mapping[int, memoryview]) -> None:
        """Send bytes to other ranks, and fill memory with the bytes that others send here."""
        gathered = self.gather({receiver: len(raw) for receiver, raw in sent.items()})
        sizes = {
            (rank, receiver): size
            for rank, sizes_by_receiver in enumerate(gathered)
            for receiver, size in sizes_by_receiver.items()
        }
        while sizes:
            turn: dict[int, int] = {}
            for sender, receiver in sizes:
                if sender not in turn and receiver not in turn.values():
                    turn[sender] = receiver
            longest = max(sizes.pop(pair) for pair in turn.items())
            raw = sent.get(turn.get(self.rank, -1), b"")
            senders = (sender for sender, receiver in turn.items() if receiver == self.rank)
            sender = next(senders, -1)
            room = received.get(sender, memoryview(bytearray()))
            move = _mover(self.jax, tuple(turn.items()))
            for at in range(0, longest, BROADCAST_BYTES):
                width = min(
                    BROADCAST_BYTES, -(-(longest - at) // SENT_MULTIPLE_BYTES) * SENT_MULTIPLE_BYTES
                )
                moved = move(_as_array(bytes(raw[at : at + width]).ljust(width, b"\0")))
                room[at : at + width] = memoryview(moved)[: len(room[at : at + width])]


def _as_array(raw: Any) -> Any:
    return numpy_module().frombuffer(raw, "uint8")


@functools.lru_cache(maxsize=8)
def _mover(jax: Any, turn: tuple[tuple[int, int], ...]) -> Any:
    """Return a function that sends an array of bytes between ranks. All ranks must call it."""
    devices: dict[int, Any] = {}
    for device in jax.devices():
        devices.setdefault(device.process_index, device)
    by_rank = jax.sharding.PartitionSpec("ranks")
    ranks = [devices[rank] for rank in sorted(devices)]
    mesh = jax.sharding.Mesh(numpy_module().array(ranks), ("ranks",))
    permute = functools.partial(jax.lax.ppermute, axis_name="ranks", perm=turn)
    run = jax.jit(jax.shard_map(permute, mesh=mesh, in_specs=by_rank, out_specs=by_rank))
    place = jax.sharding.NamedSharding(mesh, by_rank)

    def move(array: Any) -> Any:
        moved = run(jax.make_array_from_process_local_data(place, array))
        return numpy_module().asarray(moved.addressable_data(0))

    return move


# Groups in which the ranks of a sharded state tell each other something, in memory of the CPU and
# beside what the training tells, by the group of all ranks.
_groups: dict[Any, Any] = {}


def _find(name: str) -> Any:
    """Return a module whose ranks have found each other; None if there is none."""
    module: Any = sys.modules.get(name)
    distributed: Any = getattr(module, "distributed", None)
    is_there = getattr(distributed, "is_available", lambda: distributed is not None)
    # An old JAX cannot tell.
    return module if is_there() and getattr(distributed, "is_initialized", bool)() else None


def find_sharded_ranks() -> Ranks:
    """Return the ranks of torch.distributed, in a group of their own, or of jax.distributed.

    All ranks must call this. Raises RuntimeError if neither has begun.
    """
    torch = _find("torch")
    if torch is None:
        jax = _find("jax")
        if jax is None:
            raise RuntimeError(
                "keep: a sharded state needs torch.distributed or jax.distributed: call "
                "init_process_group() or initialize() first"
            )
        return JaxRanks(jax)
    everybody = torch.distributed.group.WORLD
    if everybody not in _groups:
        _groups.clear()
        _groups[everybody] = torch.distributed.new_group(backend="gloo")
    return TorchRanks(torch, _groups[everybody])


def find_ranks() -> Ranks:
    """Return the ranks to which this process belongs: Horovod's, torch.distributed's or JAX's.

    Without any, this process is alone. Raises RuntimeError if WORLD_SIZE contradicts that.
    """
    for name in ("tensorflow", "torch"):
        hvd: Any = sys.modules.get(f"horovod.{name}")
        if hvd is not None and hvd.is_initialized():
            return HorovodRanks(hvd, name)
    for find, make in (("torch", TorchRanks), ("jax", JaxRanks)):
        module = _find(find)
        if module is not None:
            return make(module)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Each would take itself for the only one, and write what the others write.
        raise RuntimeError(
            f"keep: this is one of {os.environ['WORLD_SIZE']} ranks, but neither Horovod, with "
            "TensorFlow or PyTorch, nor torch.distributed nor jax.distributed has begun: call "
            "hvd.init(), init_process_group() or initialize() first; keep does not know the ranks "
            "of other libraries"
        )
    return Ranks()
