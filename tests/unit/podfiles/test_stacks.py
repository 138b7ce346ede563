"""What the kernel tells of a process that is asked for its Python stack: this one, for a rank."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvd_pods.common import fast_start
from hvd_pods.rank import ranks
from hvd_pods.worker import stacks

# No process has a number so high.
NOBODY = 2**22 + 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which ranks are written down."""
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def blocked() -> Iterator[None]:
    """As while the handler of the signal runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {ranks.STACK_SIGNAL})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_process_that_blocks_the_signal_is_writing_its_stack(blocked: None) -> None:
    assert stacks.is_writing(os.getpid())


def test_process_that_has_ended_writes_nothing_more() -> None:
    assert not stacks.is_writing(os.getpid())
    assert not stacks.is_writing(NOBODY)


def test_only_a_signal_of_the_sets_that_are_named_counts(blocked: None) -> None:
    assert stacks.has_signal(os.getpid(), "SigBlk")
    assert stacks.has_signal(os.getpid(), "SigPnd", "SigBlk")
    assert not stacks.has_signal(os.getpid(), "SigIgn")
    # Another signal of the same set.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ranks.STACK_SIGNAL})
    signal.pthread_sigmask(signal.SIG_BLOCK, {ranks.STACK_SIGNAL - 1, ranks.STACK_SIGNAL + 1})
    assert not stacks.has_signal(os.getpid(), "SigBlk")


def test_rank_that_is_asked_for_by_its_number_and_has_ended_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have been written down, and end before it is asked."""
    gone = ranks.Script(4, NOBODY, "1", "", "")
    monkeypatch.setattr(ranks, "running", lambda: iter([gone]))
    monkeypatch.setattr("sys.argv", ["stacks.py", "7", "4"])
    assert stacks.main() == 0
    assert capsys.readouterr().out == "rank 7 has ended\nrank 4 has ended\n"


def test_all_ranks_together_have_one_time_to_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = [ranks.Script(rank, rank + 100, "1", "", "") for rank in (0, 1)]
    until: list[tuple[float, ...]] = []

    def read(*words: float) -> str:
        until.append(words)
        return "writes\n\n"

    monkeypatch.setattr(ranks, "running", lambda: iter(running))
    monkeypatch.setattr(stacks, "ask", lambda script: None)
    monkeypatch.setattr(stacks, "read", read)
    monkeypatch.setattr(stacks, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr("sys.argv", ["stacks.py"])
    assert stacks.main() == 0
    end = 100.0 + stacks.ANSWER_WITHIN
    assert until == [(0, 100, end), (1, 101, end)]
    assert capsys.readouterr().out == "rank 0 writes\nrank 1 writes\n"


def test_file_that_a_process_closes_meanwhile_does_not_hide_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / "0.stack").open("w") as file:
        names = ["999999", str(file.fileno())]
        monkeypatch.setattr(fast_start, "list_names", lambda _: names)
        assert stacks.has_open(os.getpid(), file.name)
        names.pop()
        assert not stacks.has_open(os.getpid(), file.name)
