"""Progress messages, in a terminal and in a log."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from devtools.common import ui


class Log(io.StringIO):
    """A log that tells when a line with a word was written."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word
        self.seen = threading.Event()

    def write(self, text: str) -> int:
        if self.word in text:
            self.seen.set()
        return super().write(text)


def test_step_tells_a_log_that_it_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("running")
    monkeypatch.setattr(ui, "console", Console(file=log))
    monkeypatch.setattr(ui, "ALIVE_EVERY", 0.01)
    with ui.step("build kube"):
        assert log.seen.wait(10)
    first, *_, last = log.getvalue().splitlines()
    assert first.startswith("running build kube (")
    assert last.startswith("done    build kube (")


def test_short_step_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(ui, "console", Console(file=log))
    with ui.step("render"):
        pass
    assert len(log.getvalue().splitlines()) == 1


def test_failed_step_says_so_and_ends_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(ui, "console", Console(file=log))
    before = {*threading.enumerate()}
    with pytest.raises(ValueError, match="no"), ui.step("render"):
        raise ValueError("no")
    assert log.getvalue().startswith("failed  render (")
    assert {*threading.enumerate()} <= before
