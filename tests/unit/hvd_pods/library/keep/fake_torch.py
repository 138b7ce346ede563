"""A PyTorch with one GPU, of which keep sees as much as it uses; all tensors are bytes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from tests.fakes.faults import TIMEOUT

DTYPE = type("dtype", (), {"__str__": lambda _self: "torch.uint8"})


class Tensor:
    """Bytes in the memory of the CPU or of the GPU."""

    def __init__(self, gpu: Gpu, data: Any, device: str) -> None:
        self.gpu = gpu
        self.data = memoryview(data)
        self.device = device
        self.dtype = gpu.uint8
        self.shape = (len(self.data),)
        self.is_cpu = device == "cpu"
        # As Intel's and Apple's GPUs, another device is neither.
        self.is_cuda = device.startswith("cuda")

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def numel(self) -> int:
        return len(self.data)

    __len__ = numel

    def element_size(self) -> int:
        return 1

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return id(self.data.obj)

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(self.gpu, self.data[part], self.device)

    def __deepcopy__(self, _memo: Any) -> Tensor:
        return Tensor(self.gpu, bytearray(self.data), self.device)

    def same(self, *_: Any) -> Tensor:
        return self

    view = reshape = as_strided = detach = contiguous = same

    def cpu(self) -> Tensor:
        return Tensor(self.gpu, bytearray(self.data), "cpu")

    def numpy(self) -> Any:
        return self.data

    def copy_(self, other: Tensor, *, non_blocking: bool) -> None:
        def copy() -> None:
            self.data[:] = other.data

        self.gpu.run(copy)


class Gpu:
    """It does at once what the training asks for; a stream of its own waits for `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = False
        self.free = 1 << 30
        self.registers = 0
        # Addresses that are registered, in their order.
        self.registered: list[int] = []
        self.uint8 = DTYPE()
        self._stream: list[Callable[[], None]] | None = None
        self._later: list[Callable[[], None]] = []

    def torch(self) -> Any:
        """What scripts import."""
        cuda = SimpleNamespace(
            device=lambda _device: contextlib.nullcontext(),
            mem_get_info=lambda: (self.free, self.free),
            cudart=lambda: SimpleNamespace(
                cudaHostRegister=self._register,
                cudaHostUnregister=self.registered.remove,
            ),
            current_stream=lambda *_: SimpleNamespace(synchronize=lambda: None),
            Stream=lambda: SimpleNamespace(wait_stream=lambda _other: None),
            stream=self._beside,
            Event=lambda *, blocking: SimpleNamespace(record=lambda: None, synchronize=self._wait),
        )
        return SimpleNamespace(
            cuda=cuda,
            Tensor=Tensor,
            nn=SimpleNamespace(Parameter=Tensor),
            dtype=DTYPE,
            uint8=self.uint8,
            no_grad=contextlib.nullcontext,
            ones=lambda _size, device: self.tensor(b"1"),
            empty=lambda size, dtype, device: self.tensor(bytes(size)),
            frombuffer=lambda data, dtype: Tensor(self, data, "cpu"),
        )

    def tensor(self, content: bytes, device: str = "cuda:0") -> Tensor:
        """A tensor on the GPU."""
        return Tensor(self, bytearray(content), device)

    def run(self, copy: Callable[[], None]) -> None:
        """Copy in the stream that is the current one."""
        if self._stream is None:
            copy()
        else:
            self._stream.append(copy)

    def _register(self, address: int, _size: int, _flags: int) -> int:
        self.registers += 1
        if self.fails:
            return 1
        self.registered.append(address)
        return 0

    @contextlib.contextmanager
    def _beside(self, _stream: Any) -> Iterator[None]:
        self._stream = self._later = []
        yield
        self._stream = None

    def _wait(self) -> None:
        assert self.goes_on.wait(TIMEOUT)
        if self.fails:
            raise RuntimeError("CUDA error: unspecified launch failure")
        while self._later:
            self._later.pop(0)()
