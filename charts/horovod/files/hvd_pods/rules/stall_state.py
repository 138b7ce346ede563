"""Ranks that keep the others waiting: the reports about each, and the ranks that are named now.

stalls.py decides about the consequences.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Mapping, NamedTuple, Sequence

from hvd_pods.rules.events import Moment
from hvd_pods.shared.objects import format_time

# Seconds in which the lines of a message arrive.
MESSAGE_COLLECT_SECONDS = 0.5
# A rank that is not named for so many periods had joined: its next stall is a new one.
FORGOTTEN_PERIODS = 2.5
# This stands for no rank: the launcher has not ended.
NO_RANK = -1
# Ranks that are named at a time.
MAX_NAMED_RANKS = 8


class RankStall(NamedTuple):
    """A rank that keeps the others waiting: since when, when it was named, and the operation."""

    rank: int
    worker: str
    what: str
    since: float
    seen: float
    period: float
    # A signal has stopped it: it makes no progress that could be worth waiting for.
    is_stopped: bool = False
    # The place of its script, as FILE:LINE in FUNCTION; empty while it is unknown.
    place: str = ""
    # False for Horovod's reports. Horovod checks periodically: the stall may have begun before
    # `since`.
    is_measured: bool = True

    def is_named_at(self, now: float) -> bool:
        """Return whether this stall was named recently, and may last."""
        return now - self.seen < FORGOTTEN_PERIODS * self.period + MESSAGE_COLLECT_SECONDS

    def entry(self, moment: Moment) -> str:
        """Return this stall for the record at a moment, in JSON (hvdchart/run/state/stalls.py)."""
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

    known: Mapping[int, RankStall] = field(default_factory=dict)
    new: Mapping[int, RankStall] = field(default_factory=dict)
    # The description of ranks that have stalled too long, while their stacks are requested.
    late: str = ""
    # The time from which ranks may be named again.
    quiet_until: float = 0.0

    def add(self, stall: RankStall) -> Stalls:
        """Note a stalled rank."""
        rank = stall.rank
        now = stall.seen
        since = stall.since
        known_stalls = self.known
        noted = self.new.get(rank) or known_stalls.get(rank)
        before = self.find(rank, since, stall.period) if stall.is_measured else noted
        if before and before._replace(period=stall.period).is_named_at(now):
            # It is named once in a period, and notices take a moment to arrive.
            since = min(since, before.since)
            stall = stall._replace(place=before.place)
            if rank in known_stalls:
                # The stall lasts, although no message names it for a while.
                known_stalls = {
                    **known_stalls,
                    rank: known_stalls[rank]._replace(seen=now, period=stall.period),
                }
        return replace(
            self, known=known_stalls, new={**self.new, rank: stall._replace(since=since)}
        )

    def find(self, rank: int, since: float, period: float) -> RankStall | None:
        """Return the known stall that began then: notices take a moment to arrive."""
        before = self.new.get(rank) or self.known.get(rank)
        return before if before and abs(since - before.since) < period else None

    def list_named(self, now: float) -> list[RankStall]:
        """Return the ranks that are named repeatedly."""
        return [stall for stall in self.known.values() if stall.is_named_at(now)]

    def note_places(self, places: Mapping[int, str]) -> Stalls:
        """Note the places of the ranks' scripts."""
        stalls = {
            rank: stall._replace(place=places.get(rank, stall.place))
            for rank, stall in self.known.items()
        }
        return replace(self, known=stalls)

    def collect(self) -> tuple[Stalls, list[RankStall]]:
        """Take the ranks of a message, and return those that are named for the first time."""
        stalls = list(self.new.values())
        known_stalls = self.known
        # If a notice reports an earlier start than the previous one, the same stall began earlier.
        first = [
            stall
            for stall in stalls
            if stall.rank not in known_stalls or stall.since > known_stalls[stall.rank].since
        ]
        now_known = {**known_stalls, **{stall.rank: stall for stall in stalls}}
        return replace(self, known=now_known, new={}), first


def describe_stalls(stalls: Sequence[RankStall]) -> str:
    """Name the ranks, the first of them if there are many."""
    more = f"; and {len(stalls) - MAX_NAMED_RANKS} more" if len(stalls) > MAX_NAMED_RANKS else ""
    return "; ".join(str(stall) for stall in stalls[:MAX_NAMED_RANKS]) + more
