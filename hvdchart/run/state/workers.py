"""Counts the workers of a run, and its spares. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvd_pods.shared.contract import MINIMUM, SPARES
from hvd_pods.shared.untrusted import MAX_COUNTED, parse_count
from hvdchart.run.state.release import Object, is_child, is_ready


@dataclass(frozen=True)
class Workers:
    """The number of workers and spares; `dispensable` pods are not up, and not needed.

    `used`: how many workers have ranks, for a run that may continue with fewer than it wants; else
    0.
    """

    used: int
    are_enough: bool
    ready: int
    wanted: int
    spares_ready: int
    spares_wanted: int
    dispensable: tuple[Object, ...]


def count_workers(stateful_sets: Iterable[Object], pods: Sequence[Object], used: int) -> Workers:
    """Count the workers that the ranks need in each StatefulSet, whichever pods these are.

    `used`: how many have ranks according to the record, 0 before the run has trained.
    """
    may_shrink = False
    are_enough = True
    ready = wanted = spares_ready = spares_wanted = 0
    dispensable: list[Object] = []
    for stateful_set in stateful_sets:
        metadata = stateful_set["metadata"]
        replicas = int(stateful_set["spec"].get("replicas", 0))
        # The chart's annotation has the number of spares among the replicas. Scaled to 0, there are
        # none.
        notes = metadata.get("annotations") or {}
        spares = min(parse_count(str(notes.get(SPARES, "")), MAX_COUNTED) or 0, replicas)
        minimum = parse_count(str(notes.get(MINIMUM, "")), MAX_COUNTED)
        workers = [pod for pod in pods if is_child(pod, metadata["name"])]
        up = sum(map(is_ready, workers))
        most = replicas - spares
        needed = min(minimum, most) if minimum and used else most
        may_shrink = may_shrink or bool(minimum)
        are_enough = are_enough and up >= needed
        ready += min(up, most) if spares else up
        wanted += most
        spares_ready += min(max(up - most, 0), spares)
        spares_wanted += spares
        if (spares or needed < most) and up >= needed:
            dispensable += [pod for pod in workers if not is_ready(pod)]
    return Workers(
        used=used if may_shrink else 0,
        are_enough=are_enough,
        ready=ready,
        wanted=wanted,
        spares_ready=spares_ready,
        spares_wanted=spares_wanted,
        dispensable=tuple(dispensable),
    )
