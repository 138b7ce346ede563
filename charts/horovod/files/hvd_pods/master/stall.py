"""Ranks that keep the others waiting: named in the log, and the end of the attempt after a time.

Horovod's first rank finds those that do not join a collective operation, and writes them to its
standard error again and again. A rank that is stopped is reported by its worker
(files/rank_watch.py).
"""

from __future__ import annotations

import re
import threading
import time
from typing import Callable, NamedTuple, Sequence

from hvd_pods.common.errors import LaunchError
from hvd_pods.common.notices import ASKED, ENDED, FAILED, RAISED, Notice
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Run
from hvd_pods.master import notice_server, remote
from hvd_pods.master.failure import find_host
from hvd_pods.master.launch import Launcher

# Horovod's message; a line for each missing rank follows (horovod/common/stall_inspector.cc).
STALLED = re.compile(r"are waiting for remainder of ranks for more than (\d+) seconds")
MISSING = re.compile(r"(\d+)!?: \[(.*)\]")
# Lines of other ranks that may come between those of a message.
STRAY_LINES = 20
# Seconds in which the lines of a message arrive.
COLLECT = 0.5
# A rank that is not named for so many periods had joined, and is named anew.
FORGET_AFTER = 2.5
# Ranks that are named at a time, and characters of what they have not joined.
MOST_RANKS, MOST_TEXT = 8, 160
# Seconds in which a host has to say what a rank does.
ANSWER_WITHIN = 15.0


class Stall(NamedTuple):
    """A rank that keeps the others waiting: since when, when it was named, and for what."""

    rank: int
    host: str
    what: str
    since: float
    seen: float
    period: float

    def __str__(self) -> str:
        on = f" on {self.host}" if self.host else ""
        return f"rank {self.rank}{on} {self.what} for {self.seen - self.since:.0f} s"


class Stalls:
    """The stalled ranks of the launch that runs. `announce` gets what is to become an event."""

    def __init__(self, run: Run, launcher: Launcher, announce: Callable[[str], None]) -> None:
        self._run, self._launcher, self._announce = run, launcher, announce
        # Of the launch of this number.
        self._number = 0
        self._known: dict[int, Stall] = {}
        self._new: dict[int, Stall] = {}
        self._period, self._lines = 0.0, 0
        self._guard = threading.Lock()

    def read(self, line: str) -> None:
        """Read a line of the launcher's error output."""
        found = STALLED.search(line)
        if found:
            self._period, self._lines = float(found[1]), STRAY_LINES
            return
        missing = MISSING.fullmatch(line) if self._lines else None
        if missing:
            rank, tensors = int(missing[1]), missing[2]
            host = find_host(rank, self._hosts())
            what = f"has not joined {tensors[:MOST_TEXT]}"
            self._add(rank, host.name if host else "", what, self._period, self._period)
        else:
            self._lines = max(0, self._lines - 1)

    def take(self, notice: Notice) -> None:
        """Take a notice about a rank, or of a worker that is terminating."""
        host, rank, leavers = notice["host"], notice.get("rank", -1), self._launcher.leavers
        if notice["kind"] == "stopped":
            what = "is stopped, by SIGSTOP or a debugger,"
            self._add(rank, host, what, notice["seconds"], notice["period"])
        elif notice["kind"] == RAISED:
            self._launcher.raised.append({**notice, "at": time.monotonic()})
        elif notice["kind"] == FAILED:
            if self._run.elastic:
                # The run has gone on without those that failed before.
                self._launcher.failed.clear()
            self._launcher.failed.append({**notice, "at": time.monotonic()})
        elif notice["kind"] == ENDED:
            leavers.end(host, rank, notice.get("connection"))
        elif notice["kind"] == ASKED:
            leavers.ask(host, rank)
        elif notice["kind"] == "leaving":
            leavers.ask(host, rank)
            if host not in self._launcher.leaving:
                seconds = notice["seconds"]
                log(f"{host} is terminating: its ranks have {seconds:.0f} s to save")
            self._launcher.leaving[host] = time.monotonic() + notice["seconds"]

    def _hosts(self) -> Sequence[Host]:
        # Ranks of an elastic run change their numbers.
        return [] if self._run.elastic else self._launcher.hosts()

    def _add(self, rank: int, host: str, what: str, seconds: float, period: float) -> None:
        now = time.monotonic()
        with self._guard:
            self._forget_earlier_launch()
            before = self._known.get(rank)
            since = now - seconds
            if before and now - before.seen < FORGET_AFTER * period + COLLECT:
                since = min(since, before.since)
            if not self._new:
                threading.Timer(COLLECT, self._report).start()
            self._new[rank] = Stall(rank, host, what, since, now, period)

    def _forget_earlier_launch(self) -> None:
        """Its ranks have ended: how long they had stalled says nothing about those of this one."""
        if self._number != self._launcher.number:
            self._number, self._known, self._new = self._launcher.number, {}, {}

    def _report(self) -> None:
        """Name the ranks of a message, and end the attempt if that has lasted too long."""
        with self._guard:
            self._forget_earlier_launch()
            number, stalls, self._new = self._number, list(self._new.values()), {}
            first = [s for s in stalls if not _is_same(self._known.get(s.rank), s)]
            self._known.update((stall.rank, stall) for stall in stalls)
        if first:
            log(f"stalled: {describe(first)}")
            self._announce(describe(first))
            self._show_stacks(first[:MOST_RANKS])
        limit = self._run.stall_timeout
        late = [stall for stall in stalls if limit and stall.seen - stall.since >= limit]
        # To ask for the stacks may have taken longer than the launch.
        if late and self._launcher.number == number:
            why = f"longer than launch.stallTimeoutSeconds={limit:.0f}"
            self._launcher.abort(LaunchError(f"{describe(late)}, {why}", 1))

    def _show_stacks(self, stalls: Sequence[Stall]) -> None:
        """Let the ranks write what their Python code does."""
        hosts = {host.name: host for host in self._hosts()}
        for name in dict.fromkeys(stall.host for stall in stalls if stall.host in hosts):
            ranks = [str(stall.rank) for stall in stalls if stall.host == name]
            call = remote.call([hosts[name]], ["worker/stacks.py", *ranks], seconds=ANSWER_WITHIN)
            for line in call[hosts[name]][1].splitlines():
                log(f"{name}: {line}")


def _is_same(before: Stall | None, now: Stall) -> bool:
    # A notice that came sooner than the one before says that the same stall began a little earlier.
    return before is not None and now.since <= before.since


def describe(stalls: Sequence[Stall]) -> str:
    """Name the ranks, the first of them if there are many."""
    more = f"; and {len(stalls) - MOST_RANKS} more" if len(stalls) > MOST_RANKS else ""
    return "; ".join(str(stall) for stall in stalls[:MOST_RANKS]) + more


def watch(run: Run, launcher: Launcher, announce: Callable[[str], None]) -> None:
    """Watch the ranks of all launches: for stalls, and for workers that are terminated."""
    stalls = Stalls(run, launcher, announce)
    launcher.grace, launcher.ask_ranks, launcher.follow = run.grace, remote.ask_ranks, stalls.read
    notice_server.serve(stalls.take)
