"""Ranks that keep the others waiting: what was said of each, and which are named now.

What follows from it is decided in stalls.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Mapping, NamedTuple, Sequence

from hvd_pods.cluster.objects import format_time
from hvd_pods.rules.events import Moment

# Seconds in which the lines of a message arrive.
COLLECT = 0.5
# A rank that is not named for so many periods had joined, and is named anew.
FORGET_AFTER = 2.5
# The number of no rank: what has not ended is the launcher.
NO_RANK = -1
# Ranks that are named at a time.
MOST_RANKS = 8


class Stall(NamedTuple):
    """A rank that keeps the others waiting: since when, when it was named, and for what."""

    rank: int
    worker: str
    what: str
    since: float
    seen: float
    period: float
    # A signal has stopped it, so that it does nothing that could be worth waiting for.
    is_stopped: bool = False
    # Where its script is, as FILE:LINE in FUNCTION; empty while nobody knows.
    place: str = ""
    # Horovod looks now and then: the rank may have kept the others waiting before `since`.
    is_measured: bool = True

    def is_named_at(self, now: float) -> bool:
        """Whether this stall was named a moment ago, and may last."""
        return now - self.seen < FORGET_AFTER * self.period + COLLECT

    def entry(self, moment: Moment) -> str:
        """This stall for the record at a moment, in JSON (hvdchart/run/state/stalls.py)."""
        shown = {
            "rank": self.rank,
            "worker": self.worker,
            "what": self.what,
            "since": format_time(moment.wall - (moment.now - self.since)),
            "place": self.place,
        }
        return json.dumps(shown, separators=(",", ":"))

    def __str__(self) -> str:
        on = f" on {self.worker}" if self.worker else ""
        least = "" if self.is_measured else "at least "
        return f"rank {self.rank}{on} {self.what} for {least}{self.seen - self.since:.0f} s"


@dataclass(frozen=True)
class Stalls:
    """The stalled ranks of a launch: all of them by rank, and those that were named just now."""

    known: Mapping[int, Stall] = field(default_factory=dict)
    new: Mapping[int, Stall] = field(default_factory=dict)
    # The description of ranks that have stalled too long, while their stacks are asked for.
    late: str = ""
    # From when on ranks may be named again.
    quiet_until: float = 0.0

    def add(self, stall: Stall) -> Stalls:
        """Note a stalled rank."""
        rank = stall.rank
        now = stall.seen
        since = stall.since
        known = self.known
        noted = self.new.get(rank) or known.get(rank)
        before = self.find(rank, since, stall.period) if stall.is_measured else noted
        if before and before._replace(period=stall.period).is_named_at(now):
            # It is named once in a period, and notices take a moment to arrive.
            since = min(since, before.since)
            stall = stall._replace(place=before.place)
            if rank in known:
                # It lasts, although nothing is said of it for a while.
                known = {**known, rank: known[rank]._replace(seen=now, period=stall.period)}
        return replace(self, known=known, new={**self.new, rank: stall._replace(since=since)})

    def find(self, rank: int, since: float, period: float) -> Stall | None:
        """The stall that was noted before and began then: notices take a moment to arrive."""
        before = self.new.get(rank) or self.known.get(rank)
        return before if before and abs(since - before.since) < period else None

    def named(self, now: float) -> list[Stall]:
        """The ranks that are named again and again."""
        return [stall for stall in self.known.values() if stall.is_named_at(now)]

    def note_places(self, places: Mapping[int, str]) -> Stalls:
        """Note where the scripts of ranks are."""
        known = {n: s._replace(place=places.get(n, s.place)) for n, s in self.known.items()}
        return replace(self, known=known)

    def collect(self) -> tuple[Stalls, list[Stall]]:
        """Take the ranks of a message, and return those that are named for the first time."""
        stalls = list(self.new.values())
        known = self.known
        # A notice that comes sooner than the one before says that the same stall began earlier.
        first = [s for s in stalls if s.rank not in known or s.since > known[s.rank].since]
        now_known = {**known, **{stall.rank: stall for stall in stalls}}
        return replace(self, known=now_known, new={}), first


def describe(stalls: Sequence[Stall]) -> str:
    """Name the ranks, the first of them if there are many."""
    more = f"; and {len(stalls) - MOST_RANKS} more" if len(stalls) > MOST_RANKS else ""
    return "; ".join(str(stall) for stall in stalls[:MOST_RANKS]) + more
