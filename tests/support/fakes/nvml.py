"""A library of NVIDIA's management functions (NVML) with GPUs that tests describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

# NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NOT_FOUND, NVML_ERROR_GPU_IS_LOST.
NOT_SUPPORTED = 3
NOT_FOUND = 6
LOST = 15


@dataclass
class FakeGpu:
    """A GPU, or a slice of one, which has no utilization."""

    percent: int | None = 97
    used: int = 41 << 30
    size: int = 80 << 30
    name: bytes = b"NVIDIA H100 80GB HBM3"
    uuid: bytes = b"GPU-0a1b"
    # The slices of a GPU in MIG mode; None: there is no slice of this number here.
    slices: Sequence[FakeGpu | None] = ()


@dataclass
class FakeNvml:
    """Has the functions of NVML as attributes, except those in `missing`, as an older driver.

    Those in `codes` return an error. `called` has the names of all calls.
    """

    gpu: FakeGpu
    others: Sequence[FakeGpu] = ()
    missing: Sequence[str] = ()
    codes: dict[str, int] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(type(self), f"_{name}", None)
        if function is None or name in self.missing:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            code = self.codes.get(name, 0)
            return code or function(self, *arguments) or 0

        return call

    def _find(self, device: Any) -> FakeGpu:
        """Return the GPU of a handle: 1 for the first one, 1001 for its first slice."""
        handle: int = device.value
        gpu = [self.gpu, *self.others][handle % 1000 - 1]
        part = gpu.slices[handle // 1000 - 1] if handle >= 1000 else gpu
        assert part is not None
        return part

    def _nvmlInit_v2(self) -> None:  # noqa: N802
        pass

    def _nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def _nvmlDeviceGetCount_v2(self, count: Any) -> None:  # noqa: N802
        count._obj.value = 1 + len(self.others)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> None:  # noqa: N802
        device._obj.value = 1 + index.value

    def _nvmlDeviceGetMigMode(self, device: Any, mode: Any, pending: Any) -> None:  # noqa: N802
        mode._obj.value = pending._obj.value = int(bool(self._find(device).slices))

    def _nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> None:  # noqa: N802
        count._obj.value = len(self._find(device).slices)

    def _nvmlDeviceGetMigDeviceHandleByIndex(  # noqa: N802
        self, device: Any, index: Any, part: Any
    ) -> int:
        if self._find(device).slices[index.value] is None:
            return NOT_FOUND
        part._obj.value = device.value + 1000 * (1 + index.value)
        return 0

    def _nvmlDeviceGetName(self, device: Any, name: Any, size: Any) -> None:  # noqa: N802
        assert len(name) == size.value
        name.value = self._find(device).name

    def _nvmlDeviceGetUUID(self, device: Any, uuid: Any, size: Any) -> None:  # noqa: N802
        assert len(uuid) == size.value
        uuid.value = self._find(device).uuid

    def _nvmlDeviceGetUtilizationRates(self, device: Any, rates: Any) -> int:  # noqa: N802
        percent = self._find(device).percent
        if percent is None:
            return NOT_SUPPORTED
        rates._obj[:] = [percent, 1]
        return 0

    def _nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> None:  # noqa: N802
        gpu = self._find(device)
        memory._obj[:] = [gpu.size, gpu.size - gpu.used, gpu.used]
