"""Why a launch failed, of all that may be known about its end; and a launch without a loss."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.errors import (
    LaunchError,
    LostHostError,
    NotANumberError,
    RunError,
    WorkerLeftError,
)
from hvd_pods.common.run import Host
from hvd_pods.master import lost_hosts
from hvd_pods.master.failure import Cause
from tests.unit.podfiles.runs import make_run

GONE = Host("w-1", "", 1, "w", "r")
BROKEN = {GONE: "no route to host"}
MISTAKE = Cause("rank 3 failed: ", "TypeError: no", True)
KILLED = Cause("rank 3 was killed: ", "out of memory", False)
Explain = Callable[..., "RunError | None"]


@pytest.fixture
def explain() -> Explain:
    """Explains the end of a launch, by what its launcher and its hosts have told."""

    def explain_end(
        code: int,
        problem: RunError | None = None,
        leaving: dict[str, float] | None = None,
        cause: Cause | None = None,
        broken: dict[Host, str] | None = None,
        mode: str = "horovodrun",
    ) -> RunError | None:
        launcher: Any = SimpleNamespace(
            problem=problem, leaving=leaving or {}, find_cause=lambda hosts, code: cause
        )
        rendezvous: Any = SimpleNamespace(broken=lambda hosts: broken or {})
        return lost_hosts.explain_end(make_run(mode=mode), launcher, rendezvous, [GONE], code)

    return explain_end


def test_ranks_that_ended_with_zero_have_finished(explain: Explain) -> None:
    assert explain(0) is None
    assert explain(0, problem=LostHostError("w-1 was lost as they ended", 1)) is None
    assert explain(0, broken=BROKEN, cause=MISTAKE) is None


def test_ranks_that_were_ended_have_not_finished(explain: Explain) -> None:
    """Whatever their handlers of signals make of it."""
    problem = NotANumberError()
    assert explain(0, problem=problem) is problem
    assert explain(143, problem=problem, leaving={"w-1": 1.0}, broken=BROKEN) is problem


def test_ranks_that_were_asked_to_leave_may_have_finished(
    explain: Explain, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(0, leaving={"w-1": 1.0}) is None
    assert "w-1 was terminated, but the ranks ended with 0" in capsys.readouterr().out
    assert explain(0) is None
    assert capsys.readouterr().out == "", "nobody was terminated"


def test_a_worker_that_left_is_the_cause_of_what_follows(explain: Explain) -> None:
    found = explain(143, leaving={"w-0": 1.0, "w-1": 1.0}, cause=MISTAKE, broken=BROKEN)
    assert type(found) is WorkerLeftError
    assert str(found).startswith("w-0, w-1 was terminated")
    assert found.exit_code == 143


def test_an_elastic_run_goes_on_without_workers_that_left(explain: Explain) -> None:
    found = explain(5, leaving={"w-1": 1.0}, cause=MISTAKE, broken=BROKEN, mode="elastic")
    assert type(found) is LaunchError
    assert (str(found), found.exit_code) == (MISTAKE.text, 5)


@pytest.mark.parametrize("cause", [None, MISTAKE])
def test_a_host_that_is_gone_is_named_before_what_ranks_print_then(
    explain: Explain, cause: Cause | None
) -> None:
    found = explain(1, cause=cause, broken=BROKEN)
    assert type(found) is LostHostError
    also = f"; {cause.text}" if cause else ""
    assert (str(found), found.exit_code) == (f"lost w-1: no route to host{also}", 1)


@pytest.mark.parametrize(("cause", "repeats"), [(MISTAKE, "TypeError: no"), (KILLED, "")])
def test_only_what_is_sure_to_happen_again_may_end_the_run(
    explain: Explain, cause: Cause, repeats: str
) -> None:
    found = explain(7, cause=cause)
    assert type(found) is LaunchError
    assert (str(found), found.exit_code, found.repeats) == (cause.text, 7, repeats)


def test_a_launch_that_says_nothing_has_its_exit_code_named(explain: Explain) -> None:
    found = explain(9)
    assert type(found) is LaunchError
    assert str(found).startswith("horovodrun ended with exit code 9: ")
    assert (found.exit_code, found.repeats) == (9, "")


@pytest.mark.parametrize("may_save", [[], [True, False]], ids=["its end", "a loss"])
def test_a_launch_is_ended_only_for_a_loss(
    monkeypatch: pytest.MonkeyPatch, may_save: list[bool]
) -> None:
    """A worker that was asked to leave is waited for, as long as its ranks may save."""
    monkeypatch.setattr(lost_hosts, "LOOK_AGAIN_AFTER", 0.0)
    saves, found = iter(may_save), iter([BROKEN for _ in may_save] or [{}])
    rendezvous: Any = SimpleNamespace(
        wait_for_loss=lambda hosts: next(found), explain=lambda lost: "w-1"
    )
    ended: list[RunError] = []
    announced: list[str] = []
    launcher: Any = SimpleNamespace(may_save=lambda host: next(saves), abort=ended.append)
    lost_hosts.end_when_lost(rendezvous, [GONE], launcher, announced.append)
    assert [str(problem) for problem in ended] == ["lost w-1: no route to host"] * bool(may_save)
    assert announced == ["lost w-1"] * bool(may_save)
    assert next(saves, None) is None
