"""Reads the state of this worker's GPUs from NVIDIA's management library (NVML).

NVML may crash, and it blocks when a GPU has fallen off the bus. Therefore a separate process calls
it, `gpus.py SOCKET`, and only on request. SOCKET is the number of the listening socket. The worker
requests the GPUs' metrics for its own, with a timeout. `gpus.py` without an argument sends a
request, too, and prints the response, for `hvdchart top`. NVML needs no context on a GPU, which
would take some of the GPU's memory.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Iterable, Iterator

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.pod.metrics import Sample
from hvd_pods.pod.processes import die_with_parent
from hvd_pods.shared.gpu_sample import GPU_SAMPLE
from hvd_pods.shared.paths import GPUS_SOCKET

NVML_LIBRARY = "libnvidia-ml.so.1"
# The most GPUs, or MIG slices, that a worker reports: the page of its metrics has a limit.
MAX_GPUS = 128
# The maximum sizes in bytes: of a name or a UUID with its terminator
# (NVML_DEVICE_NAME_V2_BUFFER_SIZE), and of a response.
TEXT_SIZE = 96
MAX_RESPONSE_BYTES = 1 << 18
# Seconds: how long a response is reused, the timeouts of the worker and of `top`, and the delay
# before the worker's next request after one that failed.
ANSWER_REUSE_SECONDS = 2.0
WORKER_TIMEOUT_SECONDS = 2.0
TOP_TIMEOUT_SECONDS = 5.0
WORKER_RETRY_DELAY_SECONDS = 60.0
# A client that does not read must not block the other clients.
CLIENT_SEND_TIMEOUT_SECONDS = 1.0


class NvmlReader:
    """The GPUs that this container sees, in the order of NVML.

    `library` has the functions of NVML_LIBRARY. If a function is missing, as in an older driver, or
    returns an error, its values are left out. NVML is opened at the first request. It stays open,
    which is cheaper for the driver, until it returns no values.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._is_open = False

    def read(self) -> list[Sample]:
        """Return the metrics of each GPU: its utilization from 0 to 1, its memory in bytes.

        For a GPU in MIG mode, return its slices instead. NVML reports only the memory of a slice.
        """
        self._is_open = self._is_open or self._call("nvmlInit_v2")
        if not self._is_open:
            return []
        samples = [
            sample
            for number, device in islice(self._devices(), MAX_GPUS)
            for sample in self._samples(number, device)
        ]
        if not samples:
            # The driver may have been replaced.
            self._call("nvmlShutdown")
            self._is_open = False
        return samples

    def _call(self, name: str, *arguments: Any) -> bool:
        """Call a function of NVML. Returns whether the function exists and succeeded."""
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0

    def _devices(self) -> Iterator[tuple[str, Any]]:
        """Yield the number and the handle of each GPU; the number of a slice has the form 0:1."""
        from ctypes import byref, c_uint, c_void_p

        count = c_uint()
        self._call("nvmlDeviceGetCount_v2", byref(count))
        for index in range(count.value):
            device = c_void_p()
            if not self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(device)):
                continue
            mode = c_uint()
            slices = c_uint()
            self._call("nvmlDeviceGetMigMode", device, byref(mode), byref(c_uint()))
            if not mode.value:
                yield str(index), device
                continue
            self._call("nvmlDeviceGetMaxMigDeviceCount", device, byref(slices))
            for number in range(slices.value):
                part = c_void_p()
                arguments = (device, c_uint(number), byref(part))
                if self._call("nvmlDeviceGetMigDeviceHandleByIndex", *arguments):
                    yield f"{index}:{number}", part

    def _samples(self, number: str, device: Any) -> Iterator[Sample]:
        from ctypes import byref, c_uint, c_ulonglong

        name = self._text("nvmlDeviceGetName", device)
        uuid = self._text("nvmlDeviceGetUUID", device)
        labels = (f'gpu="{number}"', f'name="{name}"', f'uuid="{uuid}"')
        # nvmlUtilization_t: the percentages of time in which the GPU computed, and accessed its
        # memory.
        rates = (c_uint * 2)()
        is_known = self._call("nvmlDeviceGetUtilizationRates", device, byref(rates))
        if is_known and rates[0] <= 100:
            yield Sample("hvdchart_gpu_utilization_ratio", f"{rates[0] / 100:g}", labels)
        # nvmlMemory_t: total, free and used; used includes the driver's own memory.
        memory = (c_ulonglong * 3)()
        if self._call("nvmlDeviceGetMemoryInfo", device, byref(memory)) and memory[0]:
            yield Sample("hvdchart_gpu_memory_used_bytes", str(memory[2]), labels)
            yield Sample("hvdchart_gpu_memory_bytes", str(memory[0]), labels)

    def _text(self, function: str, device: Any) -> str:
        """Return a text of a device, without characters that labels exclude; empty if unknown."""
        from ctypes import c_uint, create_string_buffer

        buffer = create_string_buffer(TEXT_SIZE)
        self._call(function, device, buffer, c_uint(TEXT_SIZE))
        shown = (c for c in buffer.value.decode("ascii", "ignore") if c.isalnum() or c in " -/._")
        return "".join(shown)


class GpuClient:
    """Requests the metrics of the GPUs at the socket `path`.

    After a request without a response, the next request follows `retry_delay_seconds` later.
    """

    def __init__(
        self,
        path: str,
        timeout_seconds: float = WORKER_TIMEOUT_SECONDS,
        retry_delay_seconds: float = WORKER_RETRY_DELAY_SECONDS,
    ) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._retry_delay_seconds = retry_delay_seconds
        self._not_before = 0.0

    def read(self) -> list[Sample]:
        """Return the metrics of the GPUs; none without a response, or soon after a failure."""
        if time.monotonic() < self._not_before:
            return []
        samples = ask(self._path, self._timeout_seconds)
        if not samples:
            self._not_before = time.monotonic() + self._retry_delay_seconds
        return samples


def ask(path: str, seconds: float) -> list[Sample]:
    """Return the GPU metrics of the process at a socket; none if it does not respond in time.

    Training code can replace the socket: lines of another form are left out.
    """
    until = time.monotonic() + seconds
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(path)
            data = b"\n"
            while data and len(answer) < MAX_RESPONSE_BYTES:
                seconds_left = until - time.monotonic()
                if seconds_left <= 0:
                    return []
                connection.settimeout(seconds_left)
                data = connection.recv(MAX_RESPONSE_BYTES)
                answer += data
    except OSError:
        return []
    text = answer[:MAX_RESPONSE_BYTES].decode("ascii", "replace")
    matches = map(GPU_SAMPLE.fullmatch, text.splitlines())
    samples = (Sample(match[1], match[5], match.group(2, 3, 4)) for match in matches if match)
    # Each GPU has at most three samples.
    return list(islice(samples, 3 * MAX_GPUS))


def format_lines(samples: Iterable[Sample]) -> str:
    """Return a line for each sample, in the form that `ask` reads."""
    return "".join(f"{name}{{{','.join(labels)}}} {value}\n" for name, value, labels in samples)


def serve(
    listener: socket.socket, gpus: NvmlReader, reuse_seconds: float = ANSWER_REUSE_SECONDS
) -> None:
    """Send the state of the GPUs to each connection; repeat a response for `reuse_seconds`.

    Raises OSError without the listener.
    """
    answer = b""
    until = 0.0
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            if time.monotonic() >= until:
                answer = format_lines(gpus.read()).encode()
                until = time.monotonic() + reuse_seconds
            connection.settimeout(CLIENT_SEND_TIMEOUT_SECONDS)
            connection.sendall(answer)


def main() -> int:
    """Serve on the socket with this number, or print a response of the server."""
    if len(sys.argv) == 1:
        print(format_lines(ask(GPUS_SOCKET, TOP_TIMEOUT_SECONDS)), end="")
        return 0
    listener = socket.socket(fileno=int(sys.argv[1]))
    try:
        import ctypes

        die_with_parent(os.getppid())
        library = ctypes.CDLL(NVML_LIBRARY)
    except (ImportError, OSError):
        # The socket closes, so that no client waits.
        return 0
    serve(listener, NvmlReader(library))
    return 0


if __name__ == "__main__":
    sys.exit(main())
