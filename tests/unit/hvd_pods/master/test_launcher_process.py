"""The launcher's process: how it is started, asked to end, and what is left of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.warm_worker import is_alive
from hvd_pods.master.launcher_process import LauncherProcess
from hvd_pods.rules.events import LauncherEnded
from hvd_pods.shared.errors import ConfigurationError
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents

Start = Callable[..., LauncherProcess]


@pytest.fixture
def start(taken: RecordedEvents, tmp_path: Path) -> Start:
    """Starts a shell script as the launcher of the second attempt."""

    def start_script(script: str, **variables: str) -> LauncherProcess:
        environment = {"PATH": os.environ["PATH"], "OUT": str(tmp_path), **variables}
        return LauncherProcess(["bash", "-c", script], environment, tmp_path, taken, 2)

    return start_script


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 5", 5), ("kill -9 $$", 128 + 9)]
)
def test_end_of_the_launcher_is_reported_with_its_exit_code(
    start: Start, taken: RecordedEvents, script: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    start(script)
    ended = taken.wait_for(LauncherEnded)
    assert (ended.attempt, ended.exit_code) == (2, code)
    assert 0 < ended.seconds < TIMEOUT
    assert re.search(rf"\$ bash -c '?{re.escape(script)}'?\n", capsys.readouterr().out)


def test_a_program_with_a_slash_is_found_in_the_working_directory(
    taken: RecordedEvents, tmp_path: Path
) -> None:
    """As a shell there would find it: the code of a user is there."""
    (tmp_path / "launch.sh").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "launch.sh").chmod(0o755)
    LauncherProcess(["./launch.sh"], {"PATH": os.environ["PATH"]}, tmp_path, taken, 2)
    assert taken.wait_for(LauncherEnded).exit_code == 3


@pytest.mark.parametrize(
    ("program", "content", "mode", "said"),
    [
        ("absent", None, 0, "has no absent on PATH"),
        ("./absent", None, 0, "missing"),
        ("./script", "exit 0\n", 0o755, "#!/bin/sh"),
        ("./script", "#!/no/such/program\n", 0o755, "after its #!"),
        ("./script", "#!/bin/sh\n", 0o644, "chmod"),
    ],
    ids=["absent", "absent file", "no first line", "absent interpreter", "not executable"],
)
def test_a_program_that_cannot_be_started_is_an_error_of_the_configuration(
    taken: RecordedEvents,
    tmp_path: Path,
    program: str,
    content: str | None,
    mode: int,
    said: str,
) -> None:
    """A retry of the Job would not help, so that no error of another kind may end the master."""
    if content is not None:
        (tmp_path / "script").write_text(content)
        (tmp_path / "script").chmod(mode)
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        LauncherProcess([program], {"PATH": os.environ["PATH"]}, tmp_path, taken, 2)


def test_a_missing_working_directory_is_named(taken: RecordedEvents, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f" {tmp_path}/absent"):
        LauncherProcess(["sh"], {"PATH": os.environ["PATH"]}, tmp_path / "absent", taken, 2)


@pytest.mark.parametrize(
    ("after", "signals"),
    [("", []), ("; wait", [signal.SIGTERM]), ("; wait", [signal.SIGKILL])],
    ids=["by itself", "asked", "killed"],
)
def test_nothing_is_left_of_a_launcher_that_has_ended(
    start: Start, taken: RecordedEvents, tmp_path: Path, after: str, signals: list[int]
) -> None:
    """Such as clients of the gateway, which would run beside the next attempt.

    A process group of its own, as interactive shells make them, saves nobody.
    """
    os.mkfifo(tmp_path / "pipe")
    launcher = start(f'set -m; sleep 60 & echo $! >"$OUT/pipe"{after}')
    left = int((tmp_path / "pipe").read_text())
    for number in signals:
        launcher.send(number)
    taken.wait_for(LauncherEnded)
    wait_until(lambda: not is_alive(left), TIMEOUT, "it is gone")
