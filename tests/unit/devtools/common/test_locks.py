"""Locks between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devtools.common.locks import exclusive_lock

HOLDER = """
import sys
from pathlib import Path
from devtools.common.locks import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "testing"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold(lock: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(lock)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
def test_second_process_waits_and_names_the_task_of_the_first(tmp_path: Path) -> None:
    lock = tmp_path / "folder" / "lock"
    with hold(lock) as first:
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        with hold(lock) as second:
            assert second.stdout
            assert second.stderr
            message = f"Waiting: another process is testing (lock {lock}).\n"
            assert second.stderr.readline() == message
            first.communicate()
            assert second.stdout.readline() == "held\n"
            second.communicate()


def test_free_lock_is_taken_without_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exclusive_lock(tmp_path / "lock", "testing"):
        pass
    assert capsys.readouterr().err == ""
