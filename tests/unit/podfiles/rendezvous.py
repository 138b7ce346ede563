"""What the tests of the rendezvous share."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from hvd_pods.common import errors, run
from hvd_pods.master import hosts
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import Workers
from tests.waiting import wait_until

Background = Callable[..., "Future[Any]"]
IsStopped = Callable[[], bool]
# Starts a rendezvous for a run; the second argument answers whether the pod was asked to end.
StartRendezvous = Callable[..., hosts.HostRendezvous]
# A thread of the rendezvous that ends with an exception fails the test.
fail_on_thread_exceptions = pytest.mark.filterwarnings(
    "error::pytest.PytestUnhandledThreadExceptionWarning"
)


def names(answering: dict[run.Host, str] | None) -> list[str]:
    """Return the names of the hosts that answer, in their order."""
    return [host.name for host in answering or {}]


def end_wait_at(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let the deadline come when so many hosts answer, however long they take to do so."""

    def reset(self: hosts.HostRendezvous) -> None:
        is_time = len(getattr(self, "_arrived", ())) >= number
        self.deadline = 0.0 if is_time else math.inf

    patch.setattr(hosts.HostRendezvous, "_reset_deadline", reset)


def fail_at_deadline(
    workers: Workers,
    background: Background,
    current: hosts.HostRendezvous,
    is_ready: Callable[[], bool],
) -> errors.RunError:
    """Wait for hosts in vain: let the deadline come once a condition on the requests holds."""
    waiting = background(current.wait)
    workers.api.wait(is_ready)
    # A host that comes puts it off.
    wait_until(lambda: not current._has_new_hosts(), TIMEOUT, "the rendezvous counts its hosts")
    with current.changed:
        current.deadline = 0.0
    with pytest.raises(errors.RunError) as raised:
        waiting.result(TIMEOUT)
    return raised.value
