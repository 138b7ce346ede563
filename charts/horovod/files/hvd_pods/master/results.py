"""Stores the results when the run has ended: a sidecar of the master runs `results.command`.

The sidecar runs master/results.sh and shares a directory with the master. It must not gain the
master's access to files: the master follows no link in that directory.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from functools import partial
from pathlib import Path
from typing import Callable

from hvd_pods.pod.reporting import log
from hvd_pods.shared.paths import GENERATED
from hvd_pods.shared.untrusted import LONGEST_TEXT, one_line, read_file

EXCHANGE = Path(GENERATED, "results")
# The maximum number of runs of the command, and the seconds before the second run, which double
# before each further run.
ATTEMPTS = 4
FIRST_RETRY_DELAY_SECONDS = 5.0
# Timeout in seconds for a container that has ended to run again, and seconds between two checks.
CONTAINER_READY_TIMEOUT_SECONDS = 120.0
CONTAINER_POLL_INTERVAL_SECONDS = 0.2
TOO_LONG = "it took longer than `results.timeoutSeconds` or `master.activeDeadlineSeconds` allows"
TERMINATED = "the master was terminated meanwhile"
IsStopped = Callable[[], bool]


def store(
    exchange: Path,
    timeout_seconds: float,
    is_stopped: IsStopped,
    *,
    attempts: int = ATTEMPTS,
    ready_timeout_seconds: float = CONTAINER_READY_TIMEOUT_SECONDS,
    first_delay_seconds: float = FIRST_RETRY_DELAY_SECONDS,
) -> str:
    """Run the command at most `attempts` times; return why it failed, or "" when it succeeded.

    The container has the folder `exchange`, too.
    """
    pause = first_delay_seconds
    until = time.monotonic() + timeout_seconds
    for left in reversed(range(attempts)):
        failure = _try(exchange, until, ready_timeout_seconds, is_stopped)
        if not failure or not left or is_stopped() or time.monotonic() + pause > until:
            break
        log(f"{failure}; trying again in {pause:.0f} s")
        if _wait(is_stopped, time.monotonic() + pause, lambda: False):
            break
        pause *= 2
    return failure


def _try(exchange: Path, until: float, ready_timeout_seconds: float, is_stopped: IsStopped) -> str:
    if time.monotonic() > until:
        return TOO_LONG
    try:
        (exchange / "answer").unlink(missing_ok=True)
        log("storing the results")
        if not _wait(
            partial(_ask, exchange),
            min(until, time.monotonic() + ready_timeout_seconds),
            is_stopped,
        ):
            return TERMINATED if is_stopped() else f"the container results is not running; {_see()}"
        if not _wait(lambda: os.path.lexists(exchange / "answer"), until, is_stopped):
            return TERMINATED if is_stopped() else TOO_LONG
        answer = read_file(exchange / "answer", LONGEST_TEXT).decode(errors="replace")
    except OSError as problem:
        return f"the container results does not answer as it should: {problem}; {_see()}"
    code, _, reason = answer.strip().partition(" ")
    return "" if code == "0" else f"{one_line(reason)}; {_see()}"


def _see() -> str:
    return f"for the reason, see kubectl logs {socket.gethostname()} --container results"


def _ask(exchange: Path) -> bool:
    """Ask the container to run the command; False when it is not ready for a request."""
    try:
        # The container makes the FIFO: a link there could lead to any file of this process.
        go = os.open(exchange / "go", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        # The FIFO does not exist yet, or has no reader.
        return False
    with os.fdopen(go, "wb", buffering=0) as pipe:
        if stat.S_ISFIFO(os.fstat(go).st_mode):
            pipe.write(b"go\n")
            return True
    return False


def _wait(condition: Callable[[], bool], until: float, is_stopped: IsStopped) -> bool:
    while not condition():
        if is_stopped() or time.monotonic() > until:
            return False
        time.sleep(CONTAINER_POLL_INTERVAL_SECONDS)
    return True
