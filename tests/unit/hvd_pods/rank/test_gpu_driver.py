"""A driver that is too old for the CUDA of the image is told before the script begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvd_pods.rank import gpu_driver, start
from hvd_pods.shared import thread_counts

# /proc/driver/nvidia/version of an H200, and of an older driver.
OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@U22)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
CLOSED = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
CUDA_12 = "lib/python3.12/site-packages/nvidia_cuda_runtime_cu12-12.9.79.dist-info"
CUDA_13 = "lib/python3/dist-packages/nvidia_cuda_runtime-13.2.75.dist-info"


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class OldDriver:
    """A libcuda of CUDA 12.4, in the place of ctypes.CDLL."""

    def __init__(self, name: str) -> None:
        if name != "libcuda.so.1":
            raise OSError(name)

    def cuDriverGetVersion(self, number: Any) -> int:  # noqa: N802
        number._obj.value = 12040
        return 0


@pytest.mark.parametrize(
    ("packages", "variable", "cuda", "files", "says"),
    [
        ([], "13.0.1", 12040, {"version": CLOSED}, ["550.54.14", "12.4", "13.0.1"]),
        ([CUDA_13], "", 12080, {"version": OPEN}, ["580.159.04", "12.8", "13.2.75"]),
        ([CUDA_12], "", 11080, {}, ["11.8", "12.9.79"]),
        # What the framework brings counts, and of several the oldest.
        ([CUDA_12], "13.0.1", 12040, {"version": CLOSED}, []),
        ([CUDA_13, CUDA_12], "", 12040, {"version": CLOSED}, []),
        # A driver takes programs of newer minor versions.
        ([], "12.9.1", 12000, {"version": CLOSED}, []),
        ([], "13.0.1", 13000, {"version": OPEN}, []),
        # There is no CUDA in the image, no driver, or another word in the variable.
        ([], "", 12040, {"version": CLOSED}, []),
        ([], "13.0.1", 0, {}, []),
        ([], "latest", 12040, {"version": CLOSED}, []),
    ],
)
def test_driver_is_too_old_for_a_later_major_version_of_cuda(
    tmp_path: Path,
    packages: list[str],
    variable: str,
    cuda: int,
    files: dict[str, str],
    says: list[str],
) -> None:
    write_files(tmp_path, {**dict.fromkeys(packages, ""), **files})
    environment = {"CUDA_VERSION": variable}
    problem = gpu_driver.find_problem(environment, cuda, [str(tmp_path)], str(tmp_path / "version"))
    assert bool(problem) is bool(says)
    assert all(word in str(problem) for word in says)


@pytest.mark.parametrize(
    ("device", "local_rank", "is_reported"),
    [("nvidia0", "0", True), ("nvidia0", "1", False), ("null", "0", False)],
)
def test_first_rank_of_a_worker_with_gpus_warns_of_an_old_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: str,
    local_rank: str,
    is_reported: bool,
) -> None:
    (tmp_path / device).touch()
    monkeypatch.setattr(thread_counts, "DEVICES", str(tmp_path))
    monkeypatch.setattr("ctypes.CDLL", OldDriver)
    monkeypatch.setenv("CUDA_VERSION", "13.0.1")
    start.warn_of_driver(start.RankPlace(int(local_rank), 2, int(local_rank), 2))
    assert ("CUDA 12.4" in capsys.readouterr().err) is is_reported


def test_machine_without_a_driver_has_none_that_is_too_old() -> None:
    assert gpu_driver.read_cuda() == 0
