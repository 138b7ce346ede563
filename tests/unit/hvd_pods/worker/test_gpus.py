"""What a worker tells of its GPUs, by a library that fails in each way but crashes nothing."""

from __future__ import annotations

import socket
import stat
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.pod.metrics import MAX_SERIES, Sample
from hvd_pods.pod.threads import start_thread
from hvd_pods.worker import gpus, main
from tests.support.fakes.nvml import LOST, FakeGpu, FakeNvml
from tests.support.ports import find_port

SECOND = FakeGpu(percent=0, used=1, size=2, name=b"A10", uuid=b"GPU-2")
FUNCTIONS = [name[1:] for name in vars(FakeNvml) if name.startswith("_nvml")]
Serve = Callable[..., str]


def shown(nvml: Any) -> list[str]:
    """The lines about each GPU, in short: `0 utilization_ratio 0.97`."""
    short = []
    for name, value, labels in gpus.NvmlReader(nvml).read():
        gpu = labels[0].split('"')[1]
        short.append(f"{gpu} {name[len('hvdchart_gpu_') :]} {value}")
    return short


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a socket, whose path must be short."""
    with TemporaryDirectory(prefix="gpus-") as name:
        yield Path(name)


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


@pytest.fixture
def serve(folder: Path) -> Serve:
    """Serves the GPUs of a library; returns the path of the socket."""

    def start(nvml: Any, **limits: float) -> str:
        listener = listen(folder / "gpus")
        start_thread("serve-gpus", lambda: gpus.serve(listener, gpus.NvmlReader(nvml), **limits))
        return str(folder / "gpus")

    return start


class Hanging(FakeNvml):
    """A GPU that has fallen off the bus."""

    def __init__(self) -> None:
        super().__init__(FakeGpu())
        self.goes_on = threading.Event()

    def _nvmlInit_v2(self) -> None:  # noqa: N802
        self.goes_on.wait()


def test_each_gpu_is_reported_with_its_labels() -> None:
    samples = gpus.NvmlReader(FakeNvml(FakeGpu(), [SECOND])).read()
    first = ('gpu="0"', 'name="NVIDIA H100 80GB HBM3"', 'uuid="GPU-0a1b"')
    second = ('gpu="1"', 'name="A10"', 'uuid="GPU-2"')
    assert samples == [
        Sample("hvdchart_gpu_utilization_ratio", "0.97", first),
        Sample("hvdchart_gpu_memory_used_bytes", str(41 << 30), first),
        Sample("hvdchart_gpu_memory_bytes", str(80 << 30), first),
        Sample("hvdchart_gpu_utilization_ratio", "0", second),
        Sample("hvdchart_gpu_memory_used_bytes", "1", second),
        Sample("hvdchart_gpu_memory_bytes", "2", second),
    ]


def test_slices_are_reported_in_place_of_their_gpu() -> None:
    parts = [FakeGpu(None, 3, 4), None, FakeGpu(None, 5, 6)]
    assert shown(FakeNvml(FakeGpu(slices=parts), [SECOND])) == [
        "0:0 memory_used_bytes 3",
        "0:0 memory_bytes 4",
        "0:2 memory_used_bytes 5",
        "0:2 memory_bytes 6",
        "1 utilization_ratio 0",
        "1 memory_used_bytes 1",
        "1 memory_bytes 2",
    ]


@pytest.mark.parametrize("how", ["missing", "error"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_that_is_missing_or_fails_costs_its_values_only(how: str, function: str) -> None:
    lost = {
        "nvmlInit_v2": ["utilization", "memory"],
        "nvmlDeviceGetCount_v2": ["utilization", "memory"],
        "nvmlDeviceGetHandleByIndex_v2": ["utilization", "memory"],
        "nvmlDeviceGetUtilizationRates": ["utilization"],
        "nvmlDeviceGetMemoryInfo": ["memory"],
    }.get(function, [])
    everything = shown(FakeNvml(FakeGpu()))
    nvml = FakeNvml(
        FakeGpu(),
        missing=[function] if how == "missing" else [],
        codes={function: LOST} if how == "error" else {},
    )
    assert shown(nvml) == [line for line in everything if line.split()[1].split("_")[0] not in lost]


def test_figures_that_cannot_be_are_left_out() -> None:
    """A GPU that shares its memory with the CPU has none of its own."""
    assert shown(FakeNvml(FakeGpu(percent=4_000_000_000, size=0))) == []


def test_labels_have_no_character_that_ends_them() -> None:
    (sample, *_) = gpus.NvmlReader(FakeNvml(FakeGpu(name=b'a"}\n\\b\xff', uuid=b""))).read()
    assert sample.labels == ('gpu="0"', 'name="ab"', 'uuid=""')


def test_nvml_stays_open_and_is_opened_anew_when_it_knows_nothing_more() -> None:
    nvml = FakeNvml(FakeGpu())
    read = gpus.NvmlReader(nvml).read
    opened = [bool(read()), bool(read()), nvml.called.count("nvmlInit_v2")]
    nvml.codes["nvmlDeviceGetCount_v2"] = LOST
    lost = [bool(read()), nvml.called[-1]]
    nvml.codes.clear()
    again = [bool(read()), nvml.called.count("nvmlInit_v2")]
    assert (opened, lost, again) == ([True, True, 1], [False, "nvmlShutdown"], [True, 2])


def test_whoever_asks_often_gets_the_same_answer(serve: Serve) -> None:
    nvml = FakeNvml(FakeGpu(), [SECOND] * (gpus.MAX_GPUS + 9))
    path = serve(nvml, reuse_seconds=1e9)
    answers = [gpus.ask(path, 60.0) for _ in range(2)]
    assert answers[0] == answers[1] == gpus.NvmlReader(nvml).read()
    assert len(answers[0]) == 3 * gpus.MAX_GPUS < MAX_SERIES / 2, "sampleLimit of the PodMonitor"
    assert nvml.called.count("nvmlDeviceGetName") == 2 * gpus.MAX_GPUS


def test_driver_that_hangs_is_waited_for_once_and_not_asked_again_soon(serve: Serve) -> None:
    nvml = Hanging()
    path = serve(nvml)
    asker = gpus.GpuClient(path, timeout_seconds=0.05)
    assert asker.read() == []
    nvml.goes_on.set()
    # The process itself answers others again.
    assert gpus.ask(path, 60.0)
    assert asker.read() == []


def test_driver_that_hung_is_asked_again_after_a_while(serve: Serve) -> None:
    nvml = Hanging()
    path = serve(nvml)
    asker = gpus.GpuClient(path, timeout_seconds=0.05, retry_delay_seconds=0.0)
    assert asker.read() == []
    nvml.goes_on.set()
    wait_until(asker.read, 60, "it answers")


def test_process_that_has_ended_costs_the_values_only(folder: Path) -> None:
    listen(folder / "gpus").close()
    assert gpus.GpuClient(str(folder / "gpus")).read() == []


GOOD = 'hvdchart_gpu_memory_bytes{gpu="0",name="",uuid=""} 1\n'


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (GOOD, 1),
        (GOOD.replace("memory_bytes", "slots"), 0),
        (GOOD.replace("gpu=", 'rank="1",gpu='), 0),
        (GOOD.replace('name=""', f'name="{"n" * 97}"'), 0),
        (GOOD.replace("} 1", "} nan"), 0),
        (GOOD.replace("} 1", "} 1.2.3"), 0),
        (GOOD * 9999, 3 * gpus.MAX_GPUS),
        ("\0\xff\n" + GOOD, 1),
        ("\n" * gpus.MAX_RESPONSE_BYTES + GOOD, 0),
    ],
)
def test_what_training_code_answers_in_place_of_the_gpus_spoils_no_page(
    folder: Path, answer: str, found: int
) -> None:
    listener = listen(folder / "gpus")

    def give() -> None:
        connection, _ = listener.accept()
        # It is not read to its end.
        with connection, suppress(OSError):
            connection.sendall(answer.encode("latin-1"))

    start_thread("give", give)
    assert len(gpus.ask(str(folder / "gpus"), 60.0)) == found
    listener.close()


@pytest.mark.parametrize(
    ("endless", "seconds", "found"), [(b"x", 0.2, 0), (b"\n" * 65536, 10.0, 1)]
)
def test_answer_that_never_ends_is_given_up(
    folder: Path, endless: bytes, seconds: float, found: int
) -> None:
    """One has a time limit, and one too large is cut."""
    listener = listen(folder / "gpus")
    is_over = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(GOOD.encode())
            while not is_over.is_set():
                connection.sendall(endless)

    thread = start_thread("drip", drip)
    assert len(gpus.ask(str(folder / "gpus"), seconds)) == found
    is_over.set()
    thread.join()


@pytest.mark.parametrize("device", ["null", "nvidia0"])
def test_process_is_started_where_there_are_gpus_only(
    folder: Path, device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The container may have been started before. No program is at the path of a pod's here."""
    (folder / device).touch()
    path = folder / "gpus"
    main.start_gpus(str(folder), str(path))
    main.start_gpus(str(folder), str(path))
    modes = [stat.S_IMODE(file.stat().st_mode) for file in folder.glob("gpus")]
    assert modes == ([0o600] if device == "nvidia0" else [])
    assert "[hvd" not in capfd.readouterr().out


def test_process_that_cannot_be_started_is_logged(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "nvidia0").touch()
    main.start_gpus(str(folder), str(folder / "none" / "gpus"))
    assert "GPUs: " in capfd.readouterr().out


def test_metrics_of_a_worker_have_those_of_its_gpus(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = serve(FakeNvml(FakeGpu()))
    port = find_port()
    monkeypatch.setenv("HVD_METRICS_PORT", str(port))
    main.start_metrics({"HVD_METRICS_DIR": str(tmp_path / "metrics")}, path)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    assert gpus.format_lines(gpus.ask(path, 60.0)).splitlines()[0] in lines
    assert "# TYPE hvdchart_gpu_utilization_ratio gauge" in lines
