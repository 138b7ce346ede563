"""Ranks that start cold: a process of the chart's stays between the launcher and the script."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from hvd_pods.rank import child_rank
from tests.unit.hvd_pods.copies import FILES
from tests.waiting import wait_until

RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.rank import child_rank, rank_end
status = child_rank.run(sys.argv[2:], lambda pid: print(pid, flush=True))
sys.exit(rank_end.finish(status))
"""
PAUSES = "import signal; print('runs', flush=True); signal.alarm(60); signal.pause()"
# Says how often it was asked to end, when it gets another signal.
COUNTS = """
import signal, sys
asked = []
def ask(*_):
    asked.append(1)
    print("asked", flush=True)
signal.signal(signal.SIGTERM, ask)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(40 + len(asked)))
print("runs", flush=True)
while True:
    signal.pause()
"""
SETTLED = r"State:\tS.*ShdPnd:\t0+\n"


@contextmanager
def start(*script: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a script as a launcher does: in a group of processes of its own."""
    command = [sys.executable, "-I", "-c", RANK, str(FILES), *script]
    options = {"stdout": PIPE, "stderr": PIPE, "start_new_session": True, **options}
    with subprocess.Popen(command, **options) as rank:
        assert rank.stdout is not None
        # The number of the script's process, before it begins.
        assert int(rank.stdout.readline()) != rank.pid
        yield rank
        rank.kill()


def python(code: str, **options: Any) -> Any:
    """A rank whose script says that it runs."""
    return start(sys.executable, "-c", code, **options)


def wait_for_script(rank: subprocess.Popen[bytes]) -> None:
    assert rank.stdout is not None
    assert rank.stdout.readline() == b"runs\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 5", 5), ("kill -9 $$", -9), ("kill -ABRT $$", -signal.SIGABRT)],
)
def test_rank_ends_as_its_script(script: str, code: int) -> None:
    with start("sh", "-c", script) as rank:
        assert rank.wait(60) == code


def test_signal_to_the_group_reaches_the_script_once() -> None:
    """A second SIGTERM could end a script that saves."""
    with python(COUNTS) as rank:
        wait_for_script(rank)
        os.killpg(rank.pid, signal.SIGTERM)
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"asked\n"
        status = Path(f"/proc/{rank.pid}/status")
        # The rank has taken its own one, and sleeps again.
        wait_until(lambda: re.search(SETTLED, status.read_text(), re.S), 20, "it has settled")
        os.killpg(rank.pid, signal.SIGUSR1)
        assert rank.wait(60) == 41


def test_script_dies_with_its_rank() -> None:
    with python(PAUSES) as rank:
        wait_for_script(rank)
        rank.kill()
        # The pipe ends when the last process that has it, the script, is gone.
        assert select.select([rank.stdout], [], [], 20)[0], "the script outlives its rank"
        assert rank.stdout.read() == b""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder by which a rank's Python learns where to write its stack."""
    monkeypatch.setattr(child_rank, "SITE", str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", "/own")
    # Set first, so that it is as before after the test.
    monkeypatch.setenv("HVD_SITE", "")
    monkeypatch.delenv("HVD_SITE")
    return tmp_path / "site"
