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

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import FILES

RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.rank import child_rank
from hvd_pods.rank import rank_end
started = None if sys.argv[2] == "hydra" else lambda pid: print(pid, flush=True)
status = child_rank.run(sys.argv[3:], started) if started else child_rank.run(sys.argv[3:])
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
    command = [sys.executable, "-I", "-c", RANK, str(FILES), "", *script]
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


def run_under_hydra(*script: str) -> tuple[int, bytes]:
    """Run a script as a rank under Hydra, which asks it to end when it says that it runs."""
    reader, writer = os.pipe()
    rank = subprocess.Popen(
        [sys.executable, "-I", "-c", RANK, str(FILES), "hydra", *script],
        env={**os.environ, "PMI_FD": str(writer)},
        pass_fds=[writer],
        stdout=PIPE,
    )
    os.close(writer)
    with rank, os.fdopen(reader, "rb") as pmi:
        assert rank.stdout is not None
        if rank.stdout.readline():
            rank.terminate()
        return rank.wait(60), pmi.read()


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


LEAVES = "setsid sleep 600 & setsid sh -c 'sleep 600 & sleep 600' & exit {code}"


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_script_has_started_ends_with_its_rank(code: int) -> None:
    """A launcher waits for all that have the rank's output, also after exit code 0."""
    with start("sh", "-c", LEAVES.format(code=code)) as rank:
        assert rank.stdout is not None
        assert select.select([rank.stdout], [], [], 20)[0], "the output stays open"
        assert rank.stdout.read() == b""
        assert rank.wait(20) == code


@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137), ("exit 1", 1)])
def test_failed_rank_aborts_the_run_of_hydra_with_its_exit_code(script: str, code: int) -> None:
    assert run_under_hydra("sh", "-c", script) == (code, b"cmd=abort exitcode=%d\n" % code)


def test_script_inherits_the_descriptor_of_hydra() -> None:
    script = "import os; os.write(int(os.environ['PMI_FD']), b'mine')"
    assert run_under_hydra(sys.executable, "-c", script) == (0, b"mine")


def test_request_of_hydra_to_end_reaches_the_script() -> None:
    """Hydra kills the rank's process only."""
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print('runs', flush=True); signal.pause()"
    )
    assert run_under_hydra(sys.executable, "-c", script) == (7, b"cmd=abort exitcode=7\n")
