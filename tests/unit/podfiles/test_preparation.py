"""What attempts share: the first one prepares it, and the others take it as it is."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.common import ssh
from hvd_pods.common.errors import RunError
from hvd_pods.master import preparation
from tests.unit.podfiles.runs import make_run


class Code:
    """Stands for the user's code, and notes what it is asked for."""

    def __init__(self, calls: list[Any], *given: object) -> None:
        self.calls = calls
        calls.append(given)

    def unpack(self) -> None:
        self.calls.append("unpack")

    def prepare_launcher(self, mode: str, variables: dict[str, str]) -> dict[str, str]:
        return {"MODE": mode}

    def forget_addresses(self) -> None:
        self.calls.append("forget")


def is_stopped() -> bool:
    return False


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done, in its order."""
    done: list[Any] = []
    monkeypatch.setattr(preparation, "find_keys", lambda api: "keys")
    monkeypatch.setattr(ssh, "prepare_master", done.append)
    monkeypatch.setattr(preparation, "UserCode", lambda *given: Code(done, *given))
    monkeypatch.setattr(preparation, "build_environment", lambda run, environment: {})
    monkeypatch.setattr(preparation, "select_mpi", lambda run, variables: ("mpi", variables))
    return done


@pytest.mark.parametrize(("requirements", "within"), [(False, 0.0), (True, 60.0)])
def test_first_attempt_prepares_what_all_share(
    calls: list[Any], requirements: bool, within: float
) -> None:
    """Packages are installed only where they are asked for, as long as hosts are waited for."""
    run = make_run(code="1a2b", requirements=requirements)
    shared = preparation.Preparation()
    calls.clear()
    expected: Any = ("mpi", {"MODE": "mpirun"}), {"MODE": "mpirun"}
    for _ in range(2):
        assert shared.prepare(run, None, is_stopped) == expected
    assert calls == ["keys", ("1a2b", within, is_stopped), "unpack", "forget", "forget"]


def test_attempt_after_one_that_could_not_be_prepared_tries_again(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([RunError("no mpirun"), None])

    def select(run: object, variables: object) -> str:
        problem = next(answers)
        if problem:
            raise problem
        return "mpi"

    monkeypatch.setattr(preparation, "select_mpi", select)
    shared = preparation.Preparation()
    calls.clear()
    with pytest.raises(RunError, match="no mpirun"):
        shared.prepare(make_run(), None, is_stopped)
    shared.prepare(make_run(), None, is_stopped)
    assert calls.count("keys") == 2
