"""The timers of a run: what the master waits for until a time."""

from __future__ import annotations

from enum import Enum


class TimerKind(Enum):
    """What follows when the time has come (TIMERS in decide.py); there is one timer of a kind.

    Those that are of an attempt end with it.
    """

    # Who holds the record, and for how long this master does.
    LOOK = "look"
    RENEW = "renew"
    # The session's lease, the pause between two attempts, and the stay after the end.
    LEASE = "lease"
    PAUSE = "pause"
    STAY = "stay"
    # The next look whether a queue sees workers again.
    SUCCESSORS = "successors"
    # Workers that are missing, and what is said and done about their pods.
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
        return self not in OF_RUN


OF_RUN = (
    TimerKind.LOOK,
    TimerKind.RENEW,
    TimerKind.LEASE,
    TimerKind.PAUSE,
    TimerKind.STAY,
    TimerKind.SUCCESSORS,
)
