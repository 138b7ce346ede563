"""Stores the results when the run has ended: a sidecar of the master runs `results.command`.

The sidecar runs master/results.sh and shares a directory with the master.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Callable

from hvd_pods.common.paths import GENERATED
from hvd_pods.common.reporting import log

EXCHANGE = GENERATED / "results"
# How often the command is run at most, and the seconds before the second time, which double with
# each further time.
ATTEMPTS, FIRST_PAUSE = 4, 5.0
# Seconds in which a container that has ended must be running again.
READY_WITHIN = 120.0
LOOK_EVERY = 0.2
TOO_LONG = "it took longer than results.timeoutSeconds or master.activeDeadlineSeconds allows"
IsStopped = Callable[[], bool]


def store(within: float, is_stopped: IsStopped) -> str:
    """Run the command at most ATTEMPTS times; return why it failed, or "" when it succeeded."""
    pause, until = FIRST_PAUSE, time.monotonic() + within
    for left in reversed(range(ATTEMPTS)):
        failure = _try(until, is_stopped)
        if not failure or not left or is_stopped() or time.monotonic() + pause > until:
            break
        log(f"{failure}; trying again in {pause:.0f} s")
        if _wait(is_stopped, time.monotonic() + pause, lambda: False):
            break
        pause *= 2
    return failure


def _try(until: float, is_stopped: IsStopped) -> str:
    if time.monotonic() > until:
        return TOO_LONG
    answer = EXCHANGE / "answer"
    answer.unlink(missing_ok=True)
    log("storing the results")
    is_asked = _wait(_ask, min(until, time.monotonic() + READY_WITHIN), is_stopped)
    if not (is_asked and _wait(answer.exists, until, is_stopped)):
        if is_stopped():
            return "the master was terminated meanwhile"
        if not is_asked:
            return f"the container results is not running; {_see()}"
        return TOO_LONG
    code, _, reason = answer.read_text().strip().partition(" ")
    return "" if code == "0" else f"{reason}; {_see()}"


def _see() -> str:
    return f"for the reason, see kubectl logs {socket.gethostname()} --container results"


def _ask() -> bool:
    """Ask the container to run the command; False when it is not ready for a request."""
    try:
        go = os.open(EXCHANGE / "go", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        # The FIFO is not there yet, or nobody reads it.
        return False
    os.write(go, b"go\n")
    os.close(go)
    return True


def _wait(condition: Callable[[], bool], until: float, is_stopped: IsStopped) -> bool:
    while not condition():
        if is_stopped() or time.monotonic() > until:
            return False
        time.sleep(LOOK_EVERY)
    return True
