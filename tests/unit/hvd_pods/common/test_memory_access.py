"""Whether ranks of a worker may read each other's memory, under real system call filters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_pods.common import memory_access
from hvd_pods.common.launcher_options import LAUNCHER_OPTIONS
from tests.unit.hvd_pods.copies import FILES

OPEN_MPI = LAUNCHER_OPTIONS["rankVariables"]["Open MPI"]
MPICH = LAUNCHER_OPTIONS["rankVariables"]["Intel MPI or MPICH"]
GLOO = LAUNCHER_OPTIONS["rankVariables"]["horovodrun with Gloo"]
# As a container runtime does: seccomp(2) with a filter that answers one system call with an errno.
FILTERED = """
import ctypes, os, struct, sys
sys.path.insert(0, sys.argv[1])
libc, denied = ctypes.CDLL(None, use_errno=True), int(sys.argv[2])
# Load the number of the system call; if it is the denied one, return an errno, else allow it.
code = b"".join(
    struct.pack("=HBBI", *each)
    for each in ((0x20, 0, 0, 0), (0x15, 0, 1, denied), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000))
)
buffer = ctypes.create_string_buffer(code, len(code))
program = struct.pack("@HP", 4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
from hvd_pods.common import memory_access
memory_access.DENIED = sys.argv[3]
memory_access.note(int(sys.argv[4]))
"""
# asm/unistd.h: process_vm_readv, and a system call that no program here uses.
READ = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
OTHER = 1000


def note(tmp_path: Path, denied: int, slots: int) -> Path:
    """What a worker of so many slots writes down under a filter."""
    marker = tmp_path / "denied"
    command = [sys.executable, "-I", "-c", FILTERED, str(FILES), str(denied)]
    subprocess.run([*command, str(marker), str(slots)], check=True)
    return marker


@pytest.mark.parametrize(
    ("denied", "slots", "is_noted"), [(READ, 2, True), (OTHER, 2, False), (READ, 1, False)]
)
def test_worker_of_several_ranks_notes_that_they_cannot_read_each_other(
    tmp_path: Path, denied: int, slots: int, is_noted: bool
) -> None:
    assert note(tmp_path, denied, slots).exists() == is_noted


RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.common import memory_access
from hvd_pods.rank import start
memory_access.DENIED = sys.argv[2]
sys.argv[1:] = ["2", "true"]
sys.exit(start.main())
"""


@pytest.mark.parametrize(
    ("launcher", "number", "is_warned"),
    [(OPEN_MPI, "0", True), (OPEN_MPI, "1", False), (MPICH, "0", False), (GLOO, "0", False)],
    ids=["first of Open MPI", "second of Open MPI", "first of MPICH", "first of Gloo"],
)
def test_first_rank_of_open_mpi_warns_of_slow_allreduces(
    tmp_path: Path, launcher: list[str], number: str, is_warned: bool
) -> None:
    marker = tmp_path / "denied"
    marker.touch()
    place = dict(zip(launcher, (number, "2", number, "2"), strict=True))
    done = subprocess.run(
        [sys.executable, "-I", "-c", RANK, str(FILES), str(marker)],
        env={"PATH": os.environ["PATH"], "HVD_SLOTS": "2", **place},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (f"[hvd] {memory_access.WARNING}" in done.stdout.splitlines()) == is_warned


def test_python_without_the_call_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert not memory_access.is_denied()
