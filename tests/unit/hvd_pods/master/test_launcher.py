"""The launcher's process: how it is started, asked to end, and what is left of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_pods.common.errors import ConfigurationError
from hvd_pods.master.launcher import Launcher
from hvd_pods.rules.messages import LauncherEnded, RankMissing
from tests.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.rules.told import Told
from tests.unit.hvd_pods.runs import make_run
from tests.waiting import wait_until

Start = Callable[..., Launcher]


@pytest.fixture
def start(told: Told, tmp_path: Path) -> Start:
    """Starts a shell script as the launcher of the second attempt."""

    def start_script(script: str, **variables: str) -> Launcher:
        environment = {"PATH": os.environ["PATH"], "OUT": str(tmp_path), **variables}
        return Launcher(["bash", "-c", script], environment, tmp_path, told, 2)

    return start_script


def wait_for_line(pipe: Path) -> str:
    """Wait until the launcher has written a line to a named pipe."""
    return pipe.read_text().strip()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 5", 5), ("kill -9 $$", 128 + 9)]
)
def test_end_of_the_launcher_is_told_with_its_exit_code(
    start: Start, told: Told, script: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    start(script)
    ended = told.wait_for(LauncherEnded)
    assert (ended.attempt, ended.code) == (2, code)
    assert 0 < ended.seconds < TIMEOUT
    assert re.search(rf"\$ bash -c '?{re.escape(script)}'?\n", capsys.readouterr().out)


def test_program_that_the_image_does_not_have_is_no_matter_of_luck(
    told: Told, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=rf"no horovodrun on PATH \({tmp_path}\)"):
        Launcher(["horovodrun"], {"PATH": str(tmp_path)}, tmp_path, told, 2)
    assert told.events == []


@pytest.mark.parametrize("ends", ["by itself", "asked", "killed"])
def test_nothing_is_left_of_a_launcher_that_has_ended(
    start: Start, told: Told, pipe: Path, ends: str
) -> None:
    """Such as its SSH clients, which would run beside the next attempt.

    A process group of its own, as interactive shells make them, saves nobody.
    """
    after = "" if ends == "by itself" else "; wait"
    launcher = start(f'set -m; sleep 60 & echo $! >"$OUT/pipe"{after}')
    left = int(wait_for_line(pipe))
    if after:
        launcher.end(kills=ends == "killed")
    told.wait_for(LauncherEnded)
    wait_until(lambda: not runs(left), TIMEOUT, "it is gone")


def test_error_output_is_passed_on_and_tells_missing_ranks_and_the_cause(
    start: Start, told: Told, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "One or more tensors were submitted to be reduced, and ranks are waiting for remainder of "
        "ranks for more than 60 seconds. Missing ranks:",
        "3: [allreduce.gradient]",
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 94, in f',
        "TypeError: no",
    ]
    launcher = start('printf "%s\\n" "$SAID" >&2; exit 3', SAID="\n".join(lines))
    told.wait_for(LauncherEnded, code=3)
    # The reader of the output may be slower than the process ends.
    missing = RankMissing(2, 3, "has not joined allreduce.gradient", 60.0)
    assert told.wait_for(RankMissing) == missing
    cause = launcher.errors.find_cause(make_run().hosts, 3)
    assert cause
    assert "TypeError: no" in cause.text
    assert capfd.readouterr().err.splitlines() == lines
