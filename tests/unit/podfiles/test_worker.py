"""A worker's main program and the messages of its sshd, for which a shell stands in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import worker

SERVE = (
    "import sys, worker; worker.DRAIN_WITHIN = float(sys.argv[2]);"
    "sys.exit(worker.serve(['sh', '-c', sys.argv[1]], worker.Signals()))"
)


def serve(script: str, drain_within: float) -> subprocess.CompletedProcess[str]:
    """Run a worker with a script in place of its sshd."""
    return subprocess.run(
        [sys.executable, "-c", SERVE, script, str(drain_within)],
        cwd=Path(worker.__file__).parent, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_all_messages_of_an_sshd_that_ends_are_logged_but_those_of_clients_that_left() -> None:
    left = "kex_exchange_identification: Connection closed by remote host"
    # More than a pipe holds, so that the last ones are still on their way when sshd has ended.
    script = f"seq 30000 >&2; echo '{left}' >&2; echo 'cannot bind' >&2; exit 3"
    done = serve(script, worker.DRAIN_WITHIN)
    assert done.returncode == 3, done.stderr[-500:]
    assert done.stderr.splitlines() == [*map(str, range(1, 30001)), "cannot bind"]
    assert "sshd has ended with exit code 3" in done.stdout


@pytest.mark.slow
def test_sessions_that_go_on_do_not_keep_a_worker_whose_sshd_has_ended() -> None:
    """They have its standard error."""
    done = serve("sleep 600 >/dev/null & echo $!; exit 3", 0.01)
    os.kill(int(done.stdout.splitlines()[0]), signal.SIGKILL)
    assert done.returncode == 3, done.stderr


NOTES = """
import sys, memory_access, worker
memory_access.note = lambda slots: print("slots", slots)
sys.exit(worker.serve(["true"], worker.Signals()))
"""


@pytest.mark.slow
def test_worker_finds_out_whether_its_ranks_may_read_each_other() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTES],
        env={**os.environ, "HVD_SLOTS": "2"}, cwd=Path(worker.__file__).parent,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "slots 2" in done.stdout.splitlines()


SIGNALLED = """
import os, select, signal, worker
signals = worker.Signals()
os.kill(os.getpid(), signal.SIGTERM)
signals.wait(60)
print(signals.asked_to_end, select.select([signals._reader], [], [], 0)[0])
"""


@pytest.mark.slow
def test_signal_wakes_a_worker_once() -> None:
    command = [sys.executable, "-c", SIGNALLED]
    files = Path(worker.__file__).parent
    assert subprocess.check_output(command, cwd=files, timeout=20) == b"True []\n"
