"""A worker's main program and the messages of its sshd, for which a shell stands in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import worker

SERVE = "import sys, worker; sys.exit(worker.serve(['sh', '-c', sys.argv[1]], worker.Signals()))"


def test_all_messages_of_an_sshd_that_ends_are_logged_but_those_of_clients_that_left() -> None:
    left = "kex_exchange_identification: Connection closed by remote host"
    # More than a pipe holds, so that the last ones are still on their way when sshd has ended.
    script = f"seq 30000 >&2; echo '{left}' >&2; echo 'cannot bind' >&2; exit 3"
    files = Path(worker.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", SERVE, script],
        cwd=files, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr[-500:]
    assert done.stderr.splitlines() == [*map(str, range(1, 30001)), "cannot bind"]
    assert "sshd has ended with exit code 3" in done.stdout
