"""Follows the events of a release until its run is over."""

from __future__ import annotations

from collections.abc import Iterator

from hvdchart.run.cluster import Cluster
from hvdchart.run.release import Object, event_time, is_about
from hvdchart.run.watch import Follower, wait_for_end


def follow_events(cluster: Cluster, name: str) -> Iterator[Object]:
    """The release's events so far, oldest first, and each one as it comes until the run ends."""
    shown: set[tuple[str, str]] = set()

    def is_new(event: Object) -> bool:
        # The count of an event that happens again grows, and so does its time.
        key = (str(event["metadata"].get("name")), event_time(event))
        was_shown = key in shown
        shown.add(key)
        return not was_shown

    yield from filter(is_new, cluster.events(name))
    with Follower[Object]() as follower:
        follower.watch(cluster, "events", lambda kind, event: event if kind != "DELETED" else {})

        def wait() -> None:
            wait_for_end(cluster, name)
            follower.put({"end": True})

        follower.start(wait)
        while "end" not in (event := follower.get()):
            if event and is_about(event, name) and is_new(event):
                yield event
    # The last ones may come later than the end of the Job.
    yield from filter(is_new, cluster.events(name))
