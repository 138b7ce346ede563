"""Follows the events of a release until its run is over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.release import Object, event_time, is_about
from hvdchart.run.watch import WATCH_SECONDS, wait_for_end


def follow_events(cluster: Cluster, name: str) -> Iterator[Object]:
    """The release's events so far, oldest first, and then each one as it comes.

    Ends with the run. Raises ClusterError when the API server refuses a request.
    """
    news: queue.Queue[Object | ClusterError | None] = queue.Queue()
    shown: set[tuple[str, str]] = set()

    def watch() -> None:
        try:
            while True:
                for kind, event in cluster.watch_events(WATCH_SECONDS):
                    if kind != "DELETED" and is_about(event, name):
                        news.put(event)
        except ClusterError as error:
            news.put(error)

    def wait() -> None:
        try:
            wait_for_end(cluster, name)
            news.put(None)
        except ClusterError as error:
            news.put(error)

    def new(event: Object) -> bool:
        # The count of an event that happens again grows, and so does its time.
        key = (str(event["metadata"].get("name")), event_time(event))
        is_new = key not in shown
        shown.add(key)
        return is_new

    yield from filter(new, cluster.events(name))
    for work in (watch, wait):
        threading.Thread(target=work, daemon=True).start()
    while True:
        item = news.get()
        if isinstance(item, ClusterError):
            raise item
        if item is None:
            break
        if new(item):
            yield item
    # The last ones may come later than the end of the Job.
    yield from filter(new, cluster.events(name))
