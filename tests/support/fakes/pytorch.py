"""A PyTorch with one GPU, of which keep sees as much as it uses; all tensors are bytes."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from tests.support.fakes.faults import TIMEOUT

DTYPE = type("dtype", (), {"__str__": lambda _self: "torch.uint8"})


class Tensor:
    """Bytes in the memory of the CPU or of the GPU."""

    def __init__(
        self,
        gpu: Gpu,
        data: Any,
        device: str,
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] = (1,),
    ) -> None:
        self.gpu = gpu
        self.data = memoryview(data)
        self.device = device
        self.dtype = gpu.uint8
        self.shape = (len(self.data),) if shape is None else shape
        self._strides = strides
        self.is_cpu = device == "cpu"
        # As Intel's and Apple's GPUs, another device is neither.
        self.is_cuda = device.startswith("cuda")

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def numel(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def element_size(self) -> int:
        return 1

    @property
    def _places(self) -> list[int]:
        """Where the memory has each byte, in the order of the dimensions."""
        indices = itertools.product(*map(range, self.shape))
        return [sum(map(int.__mul__, index, self._strides)) for index in indices]

    def tolist(self) -> list[int]:
        """The bytes, in the order of the dimensions."""
        return [self.data[place] for place in self._places]

    def is_contiguous(self) -> bool:
        return self._places == [*range(self.numel())]

    def contiguous(self) -> Tensor:
        return self if self.is_contiguous() else Tensor(self.gpu, bytes(self.tolist()), self.device)

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        return Tensor(self.gpu, self.data, self.device, shape, strides)

    def permute(self, order: Sequence[int]) -> Tensor:
        shape, strides = ([extents[n] for n in order] for extents in (self.shape, self._strides))
        return self.as_strided(tuple(shape), tuple(strides))

    def reshape(self, shape: Sequence[int] | int) -> Tensor:
        if isinstance(shape, int):
            return Tensor(self.gpu, self.data[: self.numel()], self.device)
        strides = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
        return self.as_strided(tuple(shape), tuple(strides))

    def data_ptr(self) -> int:
        return id(self.data.obj)

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(self.gpu, self.data[part], self.device)

    def __deepcopy__(self, _memo: Any) -> Tensor:
        return Tensor(self.gpu, bytearray(self.data), self.device, self.shape, self._strides)

    def same(self, *_: Any) -> Tensor:
        return self

    view = detach = same

    def cpu(self) -> Tensor:
        return Tensor(self.gpu, bytearray(self.data), "cpu", self.shape, self._strides)

    def numpy(self) -> Any:
        return self.data

    def copy_(self, other: Tensor, *, non_blocking: bool) -> None:
        self.gpu.kernels += 1
        self.gpu.run(lambda: self.take(other))

    def take(self, other: Tensor) -> None:
        assert self.shape == other.shape
        for place, byte in zip(self._places, other.tolist(), strict=True):
            self.data[place] = byte


class Gpu:
    """It does at once what the training asks for; a stream of its own waits for `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = False
        self.free = 1 << 30
        self.registers = 0
        # How many copies it was asked for.
        self.kernels = 0
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
            _foreach_copy_=self._copy_together,
        )

    def tensor(self, content: bytes, device: str = "cuda:0", **form: tuple[int, ...]) -> Tensor:
        """A tensor on the GPU."""
        return Tensor(self, bytearray(content), device, **form)

    def _copy_together(self, to: list[Tensor], of: list[Tensor]) -> None:
        """Copy all with one kernel, if each has the strides of the other."""
        is_fast = all(
            target.stride() == source.stride() for target, source in zip(to, of, strict=True)
        )
        self.kernels += 1 if is_fast else len(to)
        for target, source in zip(to, of, strict=True):
            target.take(source)

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
