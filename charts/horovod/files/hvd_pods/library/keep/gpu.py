"""Copies tensors from GPUs into the memory of packed states."""

from __future__ import annotations

import contextlib
import functools
import mmap
import sys
import weakref
from typing import Any, Callable

from .log import log
from .packed_content import PackedContent
from .packed_state import put_tensor

# A snapshot of the state on the GPU takes at most this part of what is free there.
SNAPSHOT_PART = 4
# Types of PyTorch of which one call copies many tensors; each tensor of another type has a call.
COPIED_TOGETHER = (
    "bfloat16",
    "bool",
    "float16",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "uint8",
)


class Memory:
    """The memory of a packed state; `pinned` is a tensor over it, once a GPU has registered it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.map = mmap.mmap(descriptor, size)
        self.pinned: Any = None

    def pin(self, torch: Any) -> None:
        """Register the memory, so that a GPU writes it while the CPU continues.

        Raises AttributeError or RuntimeError where that is not possible.
        """
        pinned = torch.frombuffer(self.map, dtype=torch.uint8)
        cudart = torch.cuda.cudart()
        error = cudart.cudaHostRegister(pinned.data_ptr(), len(self.map), 0)
        if int(error):
            with contextlib.suppress(RuntimeError):
                # CUDA tells its last error once more, to the next kernel that is started.
                torch.ones(1, device="cuda")
            raise RuntimeError(f"cudaHostRegister returned {int(error)}")
        self.pinned = pinned

        def release(pinned: Any) -> None:
            cudart.cudaHostUnregister(pinned.data_ptr())

        # It has the tensor, and by that the memory, until then.
        weakref.finalize(self, release, pinned).atexit = False


class Gpu:
    """Copies the tensors of a state from GPUs to the memory of its packed states.

    A snapshot on the GPU takes its turn among the kernels of the training. From there, one copy
    writes the memory beside the next step. The snapshot is used again when that copy has ended.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._can_pin = True
        # What the snapshot was made for.
        self._layout: list[Any] = []
        self._snapshot: Any = None
        self._stream: Any = None
        # Views of the snapshot, with the numbers of the tensors that are copied there by one call.
        self._groups: list[tuple[list[Any], list[int]]] = []
        self._has_warned = False

    def copy(
        self, content: PackedContent, memory: Memory, view: memoryview
    ) -> Callable[[], None] | None:
        """Copy the tensors to a packed state.

        Return what waits for the end of the copy and raises RuntimeError if it fails, or None
        where it has ended. Raises RuntimeError for errors of CUDA, also of earlier kernels.
        """
        tensors = content.tensors
        places = content.places
        torch = self._torch
        device = tensors[0].device
        with torch.no_grad(), torch.cuda.device(device):
            if not self._pin(memory):
                for tensor, at in zip(content.dense_tensors(), places):
                    put_tensor(view, at, tensor)
                return None
            if content.layout.on_gpu != self._layout:
                self._prepare(content)
            if self._snapshot is None:
                self._copy_each(content.dense_tensors(), places, memory)
                return None
            for views, numbers in self._groups:
                self._copy_together(views, [tensors[number] for number in numbers])
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                there = memory.pinned[places[0] : places[0] + len(self._snapshot)]
                there.copy_(self._snapshot, non_blocking=True)
                # Who waits for it leaves the CPU to others.
                event = torch.cuda.Event(blocking=True)
                event.record()
        return functools.partial(_wait_for, event, device, self._snapshot, memory)

    def _pin(self, memory: Memory) -> bool:
        if memory.pinned is None and self._can_pin:
            try:
                memory.pin(self._torch)
            except (AttributeError, RuntimeError) as problem:
                self._can_pin = False
                self._warn(f"cannot register the shared memory with the GPU ({problem})")
        return memory.pinned is not None

    def _prepare(self, content: PackedContent) -> None:
        """Make the snapshot for a new layout, if there is room for it."""
        torch = self._torch
        tensors = content.tensors
        self._layout = content.layout.on_gpu
        self._snapshot = None
        self._groups.clear()
        if len({tensor.device for tensor in tensors}) > 1:
            self._warn("the state is on several GPUs")
            return
        first = content.places[0]
        size = content.size - first
        free = torch.cuda.mem_get_info()[0]
        needs = f"a snapshot of the state on the GPU needs {_mib(size)} of {_mib(free)} free"
        if size > free // SNAPSHOT_PART:
            self._warn(f"{needs}, but may have a quarter of them")
            return
        try:
            self._snapshot = torch.empty(size, dtype=torch.uint8, device=tensors[0].device)
        except RuntimeError as problem:
            self._warn(f"{needs}: {problem}")
            return
        self._stream = torch.cuda.Stream()
        groups: dict[Any, tuple[list[Any], list[int]]] = {}
        orders = content.layout.orders
        for number, (tensor, at, order) in enumerate(zip(tensors, content.places, orders)):
            if not tensor.numel():
                continue
            begin = at - first
            data = self._snapshot[begin : begin + tensor.numel() * tensor.element_size()]
            is_dense = order is not None or tensor.is_contiguous()
            # One kernel copies many tensors of the same strides, also those of a length of 1.
            typed = data.view(tensor.dtype)
            there = (
                typed.as_strided(tensor.shape, tensor.stride())
                if is_dense
                else typed.reshape(tensor.shape)
            )
            views, numbers = groups.setdefault((tensor.dtype, is_dense), ([], []))
            views.append(there)
            numbers.append(number)
        self._groups = [*groups.values()]

    def _copy_together(self, views: list[Any], tensors: list[Any]) -> None:
        together = getattr(self._torch, "_foreach_copy_", None)
        if together is not None and str(views[0].dtype).partition(".")[2] in COPIED_TOGETHER:
            together(views, tensors)
            return
        for there, tensor in zip(views, tensors):
            there.copy_(tensor, non_blocking=True)

    def _copy_each(self, tensors: list[Any], places: list[int], memory: Memory) -> None:
        """Copy each tensor directly to the packed state, and wait once."""
        for tensor, at in zip(tensors, places):
            size = tensor.numel() * tensor.element_size()
            if size:
                there = memory.pinned[at : at + size].view(tensor.dtype).reshape(tensor.shape)
                there.copy_(tensor, non_blocking=True)
        for device in {tensor.device for tensor in tensors}:
            self._torch.cuda.current_stream(device).synchronize()

    def _warn(self, reason: str) -> None:
        """Log once why the training waits for each commit."""
        if not self._has_warned:
            self._has_warned = True
            log(f"{reason}: the training waits for the copy of each commit")


def _wait_for(event: Any, device: Any, *_used: Any) -> None:
    """Wait for an event of a GPU, and do not release what the GPU uses before.

    Raises RuntimeError for errors of CUDA.
    """
    # Otherwise the thread takes memory of the first GPU.
    with sys.modules["torch"].cuda.device(device):
        event.synchronize()


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
