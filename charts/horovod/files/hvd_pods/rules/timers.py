"""The timers of a run: the times until which the master waits."""

from __future__ import annotations

from enum import Enum


class TimerKind(Enum):
    """The kinds of timers; TIMERS in decide.py has their handlers. Each kind has one timer.

    The timers of an attempt end with it.
    """

    # Reads of a record that another master holds, and renewals of this master's lock.
    READ_RECORD = "read record"
    RENEW = "renew"
    # The session's lease, the pause between two attempts, and the workers kept after the end.
    LEASE = "lease"
    PAUSE = "pause"
    KEEP_WORKERS = "keep workers"
    # The next check whether a queue sees workers again.
    SUCCESSORS = "successors"
    # Missing workers, and reports and actions about their pods.
    WORKERS = "workers"
    PODS = "pods"
    RESUME = "resume"
    SHRINK = "shrink"
    GROW = "grow"
    LOSS = "loss"
    # A launch whose ranks stall, or have not ended after others.
    STALLS = "stalls"
    UNFINISHED = "unfinished"
    # A launcher that is asked to end: by the Job, by SIGTERM, and by SIGKILL.
    LEAVE = "leave"
    END = "end"
    KILL = "kill"

    @property
    def is_of_attempt(self) -> bool:
        """Whether this timer ends with the attempt in which it was set."""
        return self not in RUN_TIMERS


RUN_TIMERS = (
    TimerKind.READ_RECORD,
    TimerKind.RENEW,
    TimerKind.LEASE,
    TimerKind.PAUSE,
    TimerKind.KEEP_WORKERS,
    TimerKind.SUCCESSORS,
)
