"""Lines that another program is to read or to follow: they are not left in a buffer."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hvd_pods.common import fast_start, memory_access, threads
from hvd_pods.master import progress
from hvd_pods.rank import ranks, start
from hvd_pods.warm import client
from tests.unit.podfiles.test_rank import GLOO, HYDRA, OPEN_MPI


class Output(io.StringIO):
    """Standard output that remembers what has left the process."""

    flushed = ""

    def flush(self) -> None:
        self.flushed = self.getvalue()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ranks are written down; it is not there yet."""
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path / "ranks"))
    return tmp_path / "ranks"


def record_output(monkeypatch: pytest.MonkeyPatch) -> Output:
    """Called in the test itself: pytest has an output of its own for each of its phases."""
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)
    return output


@pytest.mark.parametrize(
    ("number", "local", "variables", "lines"),
    [
        (0, 0, OPEN_MPI, ["rank 0 of 8", "chosen", "slow"]),
        (1, 1, OPEN_MPI, ["rank 1 of 8"]),
        (2, 0, OPEN_MPI, ["rank 2 of 8"]),
        (0, 0, GLOO, ["rank 0 of 8", "chosen"]),
    ],
    ids=["first", "second", "first of another host", "first of Gloo"],
)
def test_what_a_rank_says_of_its_place_comes_before_what_its_script_prints(
    number: int,
    local: int,
    variables: dict[str, str],
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What concerns all ranks is said once; what concerns a host, by its first rank."""
    for name in (*OPEN_MPI, *HYDRA, *GLOO, "PMI_FD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in zip(variables, (number, 8, local, 2), strict=True):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("HVD_SLOTS", "2")
    monkeypatch.setattr(threads, "set_threads", lambda environment, ranks: "chosen")
    monkeypatch.setattr(memory_access, "find_warning", lambda ranks: "slow")
    monkeypatch.setattr(sys, "argv", ["rank.py", "8", "true"])
    own = os.getpid()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5} if pid in (0, own) else {0})
    output, began = record_output(monkeypatch), list[tuple[str, bool]]()

    def run(
        command: Sequence[str], own: int, started: Callable[[int], None], speaks: bool
    ) -> int | None:
        began.append((output.flushed, speaks))
        return 0

    monkeypatch.setattr(client, "run", run)
    assert start.main() == 0
    ((flushed, speaks),) = began
    begins = zip(flushed.splitlines(), lines, strict=True)
    assert all(line.startswith(f"[hvd] {words}") for line, words in begins)
    assert flushed.splitlines()[0].endswith(", CPUs 4-5"), "those of this process"
    assert speaks == (local == 0)


def test_rank_that_cannot_be_written_down_says_so_before_it_becomes_its_script(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.touch()
    monkeypatch.setattr(fast_start, "GENERATED", str(folder))
    output = record_output(monkeypatch)
    ranks.register(3, os.getpid())
    assert output.flushed.startswith("[hvd] rank 3 cannot be terminated gracefully: ")


def test_each_step_is_told_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, seen = record_output(monkeypatch), list[str]()
    reader, writer = os.pipe()

    def read(folder: Path, since: float) -> str:
        seen.append(output.flushed)
        if len(seen) == 2:
            os.close(writer)
        return f"horovod_step {len(seen)}"

    monkeypatch.setattr(progress, "read_folder", read)
    with os.fdopen(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        progress.report(tmp_path, 0.0, look_every=0.001)
    assert seen[:3] == ["", "horovod_step 1\n", "horovod_step 1\nhorovod_step 2\n"]
