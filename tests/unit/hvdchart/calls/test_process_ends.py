"""Forks and signals of a program with a caller: who removes the release, and who leaves it."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hvdchart
from devtools.common.waiting import wait_until
from hvdchart.errors import RunFailedError, SpecError
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.calls.pod import own_rank, write_pid_and_wait

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def fork(work: Callable[[], object]) -> int:
    """Do something in a fork of this process; its exit code, or minus the number of a signal.

    0: nothing was raised; 7: RunFailedError.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        code = 1
        try:
            work()
            code = 0
        except RunFailedError:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def _default_signals() -> Iterator[None]:
    """SIGHUP ends this process, as it does a program that nobody has changed."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_fork_that_ends_leaves_the_release(
    settings: dict[str, Any], helm: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was registered for the end of the process is registered in the fork, too."""
    closes: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", closes.append)
    with hvdchart.Caller(**settings) as caller:
        assert caller(own_rank) == [0, 1]
        assert fork(closes[-1]) == 0
        assert "uninstall" not in helm.commands()
        assert caller(own_rank) == [0, 1]


def test_a_call_of_a_fork_is_refused_at_once(settings: dict[str, Any], tmp_path: Path) -> None:
    """Also while another thread of its parent makes a call."""
    folder = tmp_path / "pids"
    folder.mkdir()
    with hvdchart.Caller(**settings) as caller, ThreadPoolExecutor() as threads:
        call = threads.submit(caller, write_pid_and_wait, [str(folder)])
        wait_until(lambda: len(list(folder.iterdir())) == 2, 30, "both ranks run")
        assert fork(lambda: caller(own_rank, timeout=5)) == 7
        caller.close()
        with pytest.raises(RunFailedError, match="closed"):
            call.result()


def test_a_fork_does_not_wait_for_a_caller_that_its_parent_makes(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """The thread that makes it is not in the fork, and would never come to its end."""
    spec = tmp_path / "spec"
    os.mkfifo(spec)

    def launch_elsewhere() -> None:
        with pytest.raises(SpecError, match="workers"):
            hvdchart.launch(own_rank, workers=0)

    with ThreadPoolExecutor() as threads:
        call = threads.submit(hvdchart.launch, own_rank, **{**settings, "spec": spec})
        # It opens when the thread reads the spec.
        with spec.open("wb") as file:
            assert fork(launch_elsewhere) == 0
            file.write(b"none")
        with pytest.raises(SpecError):
            call.result()


@pytest.mark.usefixtures("_default_signals")
def test_terminal_that_is_closed_ends_the_program_in_its_usual_way(
    settings: dict[str, Any],
) -> None:
    """What is registered for that end removes the release."""
    with hvdchart.Caller(**settings) as caller:
        caller(own_rank)
        assert signal.getsignal(signal.SIGHUP) != signal.SIG_DFL
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGHUP)
