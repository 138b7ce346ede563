"""What the master does with the answers of workers that it asks over SSH."""

from __future__ import annotations

import pytest
import remote

from tests.unit.podfiles.runs import make_run


def test_ranks_that_are_asked_to_end_are_counted_and_a_worker_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, third, *_ = make_run().hosts
    answers = {first: (0, "a warning\n2"), second: (255, "3"), third: (0, "no number")}
    monkeypatch.setattr(remote, "call", lambda *_, **__: answers)
    assert remote.ask_ranks(list(answers)) == 2
    printed = "".join(capfd.readouterr())
    assert f"cannot ask the ranks on {second.name} to end: 3\n" in printed
    assert f"cannot ask the ranks on {third.name} to end: no number\n" in printed
    assert f"on {first.name} to end" not in printed
