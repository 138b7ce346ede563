"""Ends a launch that has lost hosts, and names them."""

from __future__ import annotations

import time
from typing import Callable, Collection, Mapping

from hvd_pods.common.errors import LaunchError, LostHostError, RunError, WorkerLeftError
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Run
from hvd_pods.master.hosts import HostRendezvous
from hvd_pods.master.launch import Launcher
from hvd_pods.master.missing import format_hosts

# Seconds between two looks at workers that were asked to leave.
LOOK_AGAIN_AFTER = 1.0


def end_when_lost(
    rendezvous: HostRendezvous,
    hosts: Collection[Host],
    launcher: Launcher,
    announce: Callable[[str], None],
) -> None:
    """End the launch as soon as one of its hosts is lost. Returns when the rendezvous is closed.

    The launcher may not notice for minutes: nothing closes the connections of a node without power.
    """
    while True:
        lost = rendezvous.wait_for_loss(hosts)
        if not lost or not all(launcher.may_save(host) for host in lost):
            break
        # A worker that was asked to leave no longer answers, and its ranks may be saving.
        time.sleep(LOOK_AGAIN_AFTER)
    if lost:
        launcher.abort(LostHostError(describe_loss(lost), 1))
        text = f"lost {rendezvous.explain(lost)}"
        log(f"{text}: ending this attempt")
        announce(text)


def explain_end(
    run: Run,
    launcher: Launcher,
    rendezvous: HostRendezvous,
    hosts: Collection[Host],
    exit_code: int,
) -> RunError | None:
    """Return why the launcher failed: the first rank that did, unless its host is gone.

    None if it did not fail.
    """
    # An elastic run goes on without them.
    left = "" if run.elastic else ", ".join(launcher.leaving)
    problem = launcher.problem
    # The ranks may have ended in the moment in which a host was lost. Those that were ended for
    # another reason have not finished, whatever their handlers of signals make of it.
    if exit_code == 0 and (problem is None or isinstance(problem, LostHostError)):
        if left:
            log(f"{left} was terminated, but the ranks ended with 0: the run has finished")
        return None
    if problem:
        return problem
    if left:
        why = "terminated: deleted, evicted, or its node drained or shut down"
        return WorkerLeftError(f"{left} was {why}", exit_code)
    cause = launcher.find_cause(list(hosts), exit_code)
    broken = {} if run.elastic else rendezvous.broken(hosts)
    if broken:
        # What ranks print then is mostly a consequence.
        also = f"; {cause.text}" if cause else ""
        return LostHostError(describe_loss(broken) + also, exit_code)
    if cause:
        return LaunchError(cause.text, exit_code, cause.what if cause.is_sure_to_repeat else "")
    return LaunchError(
        f"{run.mode} ended with exit code {exit_code}: its last lines above say why", exit_code
    )


def describe_loss(lost: Mapping[Host, str]) -> str:
    """Name the hosts that are lost, and what attempts to reach them met."""
    by_reason: dict[str, list[Host]] = {}
    for host, reason in lost.items():
        by_reason.setdefault(reason, []).append(host)
    return "; ".join(f"lost {format_hosts(same)}: {reason}" for reason, same in by_reason.items())
