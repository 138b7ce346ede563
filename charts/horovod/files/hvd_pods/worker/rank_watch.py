"""Finds ranks of this worker that are stopped, use no CPU or keep their state, for the master.

Horovod itself finds ranks that do not join a collective operation, but its own threads wait for a
stopped rank, and then report nothing. Other frameworks report neither case.
"""

from __future__ import annotations

import os
import time
from typing import Collection, Iterable, Mapping

from hvd_pods.pod import processes
from hvd_pods.rank import rank_registry
from hvd_pods.shared import contract, notice_kinds
from hvd_pods.worker import kept_states

# A variable of Horovod: the seconds between two reports about ranks that have not joined.
PERIOD_VARIABLE = "HOROVOD_STALL_CHECK_TIME_SECONDS"
DEFAULT_PERIOD_SECONDS = 60.0
# Horovod names a rank after one to four periods, which is a minute with 15 s: it finds some tensors
# late only after two.
MAX_PERIOD_SECONDS = 15
# States of proc(5) in which a process waits until another process resumes it.
STOP_KINDS = {"T": notice_kinds.STOPPED, "t": notice_kinds.DEBUGGED}
# Frameworks that do not report stalled ranks. Under MPI, waiting ranks poll: they are never idle.
SILENT_FRAMEWORKS = ("torch", "jax")
# An attempt with a stopped rank ends early where the state is kept. Therefore the worker checks for
# stopped ranks, and notifies the master of them, at this interval in seconds.
STOPPED_CHECK_INTERVAL_SECONDS = 0.5
# A rank is idle below this share of a CPU, which includes the processes that it started.
IDLE_SHARE = 0.02


class RankWatch:
    """Tracks which ranks of this worker keep their state, are stopped or are idle."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        try:
            self._period = float(environment.get(PERIOD_VARIABLE) or DEFAULT_PERIOD_SECONDS)
        except ValueError:
            self._period = DEFAULT_PERIOD_SECONDS
        self._is_silent = environment.get(contract.FRAMEWORK) in SILENT_FRAMEWORKS
        # By process and kind of notice: the start of the condition, and the time of the last
        # notice.
        self._seen: dict[tuple[int, str], tuple[float, float]] = {}
        # By process: the seconds of CPU at the last check; and the time of that check.
        self._used: dict[int, float] = {}
        self._looked = 0.0
        self._idle: list[int] = []
        # The scripts whose kept state the master knows of.
        self._kept: set[rank_registry.RankScript] = set()

    def look(self) -> float:
        """Check all ranks once, and return the seconds until the next check."""
        scripts = {script.pid: script for script in rank_registry.running()}
        now = time.monotonic()
        kinds = dict.fromkeys(self._find_idle(scripts, now), notice_kinds.IDLE)
        stopped = {pid: find_stop(pid) for pid in scripts}
        kinds.update({pid: kind for pid, kind in stopped.items() if kind})
        self._seen = {key: self._seen.get(key, (now, now)) for key in kinds.items()}
        self._notify_of_kept(scripts.values())
        for (pid, kind), (since, reported) in self._seen.items():
            period = self._period_of(kind, scripts[pid])
            if now - reported >= period:
                self._seen[pid, kind] = (since, now)
                content = {"kind": kind, "seconds": now - since, "period": period}
                if not rank_registry.notify(scripts[pid], **content):
                    # The master does not respond: report the other ranks at the next check.
                    break
        return (
            STOPPED_CHECK_INTERVAL_SECONDS
            if self._kept
            else notice_kinds.RANK_WATCH_INTERVAL_SECONDS
        )

    def _period_of(self, kind: str, script: rank_registry.RankScript) -> float:
        """Return the seconds between two notices of a kind about a script."""
        is_often = kind == notice_kinds.STOPPED and script in self._kept
        return min(STOPPED_CHECK_INTERVAL_SECONDS, self._period) if is_often else self._period

    def _notify_of_kept(self, scripts: Collection[rank_registry.RankScript]) -> None:
        """Notify the master once of each rank whose state is in memory."""
        self._kept.intersection_update(scripts)
        for script in scripts:
            if script not in self._kept and kept_states.find_kept(script.run) is not None:
                if not rank_registry.notify(script, kind=notice_kinds.KEPT):
                    break
                self._kept.add(script)

    def _find_idle(self, pids: Collection[int], now: float) -> list[int]:
        """Return the ranks that have used no CPU since the last check."""
        if not self._is_silent:
            return []
        if self._kept and now - self._looked < notice_kinds.RANK_WATCH_INTERVAL_SECONDS:
            # In so short a time, a waiting rank may use as much CPU as it usually does in five
            # seconds.
            return [pid for pid in self._idle if pid in pids]
        used = cpu_seconds(pids)
        limit = IDLE_SHARE * (now - self._looked)
        self._idle = [
            pid for pid in used if pid in self._used and used[pid] - self._used[pid] < limit
        ]
        self._used = used
        self._looked = now
        return self._idle


def choose_period(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of Horovod that the worker's environment lacks.

    It is at most half of the stall timeout, so that a rank is named before the attempt ends.
    """
    timeout = int(environment.get(contract.STALL_TIMEOUT_SECONDS, "0"))
    period = min(MAX_PERIOD_SECONDS, max(1, timeout // 2)) if timeout else MAX_PERIOD_SECONDS
    return {} if PERIOD_VARIABLE in environment else {PERIOD_VARIABLE: str(period)}


def cpu_seconds(leaders: Iterable[int]) -> dict[int, float]:
    """Return the seconds of CPU that processes and all their descendants have used."""
    stats = {process.pid: process for process in processes.all_processes()}
    used = dict.fromkeys(leaders, 0.0)
    for pid, process in stats.items():
        leader = pid
        while leader in stats and leader not in used:
            leader = stats[leader].parent
        if leader in used:
            used[leader] += process.cpu_ticks / os.sysconf("SC_CLK_TCK")
    return used


def find_stop(pid: int) -> str | None:
    """Return the kind of notice for a stopped process; None if it is running or has ended."""
    try:
        return STOP_KINDS.get(processes.read_stat(pid).state)
    except OSError:
        return None
