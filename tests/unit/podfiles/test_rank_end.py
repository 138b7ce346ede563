"""How a rank reports the end of its script: by itself, or as one that was asked to end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common import fast_start, notices
from hvd_pods.rank import rank_end, ranks


@pytest.fixture(autouse=True)
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the master is told of a worker whose rank 3 is this process."""
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path / "ranks"))
    monkeypatch.setattr(fast_start, "GENERATED", str(tmp_path))
    monkeypatch.setenv("HVD_NOTICES", "127.0.0.1,1,secret")
    # This process goes on.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    taken: list[dict[str, Any]] = []

    def send(address: str, epoch: str, answer_within: float, **content: Any) -> None:
        shown = {name: content.get(name) for name in ("kind", "status", "waits")}
        taken.append({**shown, "within": answer_within, "is marked": ranks.is_any_waiting()})

    monkeypatch.setattr(notices, "send", send)
    return taken


def register(is_asked: bool) -> None:
    ranks.register(3, os.getpid())
    script = ranks.find(3)
    assert script
    if is_asked:
        Path(ranks._asked(script)).touch()


@pytest.mark.parametrize(
    ("is_asked", "status", "code"),
    [(True, 0, 143), (True, 1, 1), (True, -9, -9), (False, 0, 0), (False, 3, 3)],
)
def test_elastic_rank_that_was_asked_to_end_has_not_finished_the_training(
    is_asked: bool, status: int, code: int
) -> None:
    register(is_asked)
    assert rank_end.exit_code_to_report(3, status) == code
    assert rank_end.exit_code_to_report(4, status) == status, "a rank without an entry"


@pytest.mark.parametrize(
    ("is_asked", "status", "is_told"),
    [(False, 5, True), (False, -9, True), (False, 0, False), (True, 5, False)],
)
def test_master_is_told_of_ranks_that_fail_by_themselves(
    is_asked: bool, status: int, is_told: bool, told: list[dict[str, Any]]
) -> None:
    register(is_asked)
    rank_end.report_failure(3, status)
    rank_end.report_failure(4, status)
    assert [(item["kind"], item["status"]) for item in told] == [("failed", status)] * is_told


@pytest.mark.parametrize(("status", "waits"), [(0, False), (1, True), (-15, True)])
def test_rank_that_was_asked_waits_after_a_failure_for_as_long_as_its_pod_has(
    status: int, waits: bool, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVD_GRACE", "77")
    register(is_asked=True)
    rank_end.report_end(3, status)
    kind = {"kind": "ended", "status": None, "waits": waits}
    assert told == [{**kind, "within": 77.0, "is marked": True}]
    assert not ranks.is_any_waiting()


@pytest.mark.parametrize("address", [None, "127.0.0.1,1,secret", "127.0.0.1,x,secret"])
def test_rank_that_was_asked_ends_without_an_answer_of_the_master(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(*_: Any, **__: Any) -> None:
        assert address, "there is no master"
        raise ValueError(address) if "x" in address else ConnectionRefusedError(address)

    monkeypatch.setattr(notices, "send", send)
    monkeypatch.setenv("HVD_NOTICES", address or "")
    register(is_asked=True)
    rank_end.report_end(3, 1)
    assert not ranks.is_any_waiting()


def test_rank_that_waits_ends_at_the_launchers_second_signal_and_at_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signals that it passed on before: their script has ended."""
    passed_on = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
    monkeypatch.setattr(signal, "getsignal", lambda number: print if number in passed_on else None)
    chosen: dict[int, object] = {}
    monkeypatch.setattr(signal, "signal", chosen.__setitem__)
    register(is_asked=True)
    rank_end.report_end(3, 1)
    ends, ignored = signal.SIG_DFL, signal.SIG_IGN
    assert chosen == {signal.SIGTERM: ends, signal.SIGHUP: ends, signal.SIGUSR1: ignored}


def test_entry_of_a_rank_does_not_count_as_one_that_waits() -> None:
    # As the rank of this number: a process of this number is there.
    ranks.register(os.getpid(), os.getpid())
    assert not ranks.is_any_waiting()


def test_rank_whose_process_is_gone_hides_no_other_one() -> None:
    ranks.register(3, 2**22 + 1)
    ranks.register(4, os.getpid())
    assert [script.rank for script in ranks.running()] == [4]


def test_signal_that_shows_stacks_is_the_one_that_the_page_names() -> None:
    """Scripts behind a shell register it themselves."""
    page = (Path(ranks.__file__).parents[3] / "docs" / "operate.md").read_text()
    assert f"the real-time signal {ranks.STACK_SIGNAL} (`SIGRTMAX - 2`)" in page


@pytest.mark.parametrize(
    ("address", "problem", "is_told"),
    [("", None, True), ("127.0.0.1,1,secret", None, True), ("127.0.0.1,1,secret", OSError, False)],
    ids=["a master that takes no notices", "an answer", "no answer"],
)
def test_only_a_notice_that_cannot_be_sent_is_a_failure(
    address: str,
    problem: type[OSError] | None,
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def send(*_: Any, **__: Any) -> None:
        assert address, "nothing is sent to nobody"
        if problem:
            raise problem("no answer")

    monkeypatch.setattr(notices, "send", send)
    script = ranks.Script(3, os.getpid(), "", address, "7")
    assert ranks.notify(script, kind="stopped") is is_told
    assert ("cannot send the master" in capsys.readouterr().out) is not is_told
