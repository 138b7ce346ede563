"""The logs of all pods, from a cluster that a test plays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.logs import follow, has_log, past
from hvdchart.run.release import Release
from tests.unit.hvdchart.test_status import CREATING, RUNNING, event, job, pod

MASTER = pod("hvd-master-1-a", "master", RUNNING)
WORKER = pod("hvd-worker-0", "worker", RUNNING)
LATE = pod("hvd-worker-1", "worker", RUNNING)
DONE = job(("Complete", "", ""))


class Play:
    """A cluster whose worker logs never end, and whose Job ends when the master's log has."""

    def __init__(self, pods: list[Any], lines: dict[str, list[str]]) -> None:
        self.pods, self.lines = pods, lines
        self.events: list[Any] = []
        self.never = threading.Event()
        self.trained = threading.Event()
        self.asked: list[tuple[str, str, bool, int | None]] = []

    def release(self, name: str) -> Release:
        return Release(name, [DONE], [], self.pods, self.events)

    def watch_pods(self, release: str, seconds: int) -> Iterator[tuple[str, Any]]:
        for found in self.pods:
            yield "ADDED", found
            yield "MODIFIED", found
        self.never.wait()

    def watch_jobs(self, release: str, seconds: int) -> Iterator[tuple[str, Any]]:
        yield "ADDED", job()
        self.trained.wait()
        yield "MODIFIED", DONE

    def watch_events(self, seconds: int) -> Iterator[tuple[str, Any]]:
        yield from (("ADDED", event) for event in self.events)
        self.never.wait()

    def log(
        self, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> Iterator[str]:
        self.asked.append((pod, container, follow, tail))
        if pod not in self.lines:
            raise ClusterError(f'cannot read the log of pod {pod}: pods "{pod}" not found')
        yield from self.lines[pod]
        if "master" in pod:
            self.trained.set()
        elif follow:
            self.never.wait()


LINES = {"hvd-master-1-a": ["m1", "m2"], "hvd-worker-0": ["w0"], "hvd-worker-1": ["w1"]}


@pytest.mark.timeout(20)
def test_all_pods_are_followed_until_the_run_is_over() -> None:
    play = Play([WORKER, LATE, pod("hvd-worker-2", "worker", CREATING), MASTER], LINES)
    found = [(line.pod, line.text) for line in follow(play, "hvd", tail=5)]
    assert [text for name, text in found if "master" in name] == ["m1", "m2"]
    assert {name for name, _ in found} <= set(LINES)
    assert ("hvd-master-1-a", "master", True, 5) in play.asked
    assert len(play.asked) == len(set(play.asked)), "a pod was read twice"


@pytest.mark.timeout(20)
def test_a_run_that_was_over_before() -> None:
    play = Play([], LINES)
    play.trained.set()
    play.pods = []
    release = play.release
    # The watch of pods has nothing yet: the master is found by asking once more.
    play.release = lambda name: Release(name, [DONE], [], [MASTER], [])  # type: ignore[method-assign]
    assert [line.text for line in follow(play, "hvd")] == ["m1", "m2"]
    assert release("hvd").pods == []


@pytest.mark.timeout(20)
def test_a_run_that_is_taken_away() -> None:
    play, seen = Play([], LINES), threading.Event()

    def taken(release: str, seconds: int) -> Iterator[tuple[str, Any]]:
        older = job(("Complete", "", ""), name="hvd-master-0", made="2025-01-01T00:00:00Z")
        older["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
        yield "ADDED", older
        yield "ADDED", job()
        # An upgrade takes the older run's Job away: that is no end.
        yield "DELETED", older
        seen.set()
        play.trained.wait()
        yield "DELETED", job()

    def late(release: str, seconds: int) -> Iterator[tuple[str, Any]]:
        seen.wait()
        yield "ADDED", MASTER
        play.never.wait()

    play.watch_jobs, play.watch_pods = taken, late  # type: ignore[method-assign]
    assert [line.text for line in follow(play, "hvd")] == ["m1", "m2"]


@pytest.mark.timeout(20)
def test_only_the_master() -> None:
    found = follow(Play([WORKER, MASTER], LINES), "hvd", component="master")
    assert [line.text for line in found] == ["m1", "m2"]


@pytest.mark.timeout(20)
def test_a_pod_that_went_away_is_no_failure() -> None:
    gone = pod("hvd-worker-9", "worker", RUNNING)
    assert len([*follow(Play([gone, MASTER], LINES), "hvd")]) == 2


@pytest.mark.timeout(20)
def test_a_refusal_is_told() -> None:
    play = Play([MASTER], LINES)

    def refused(release: str, seconds: int) -> Iterator[tuple[str, Any]]:
        raise ClusterError("cannot watch pods: you are not allowed to")
        yield

    play.watch_pods = refused  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="not allowed"):
        list(follow(play, "hvd"))


@pytest.mark.timeout(20)
def test_warnings_since_the_run_began() -> None:
    play = Play([], {})
    play.events = [
        event("hvd-worker-0", "Pod", "FailedMount", "new", at="2026-01-01T10:00:01Z"),
        event("hvd-worker-0", "Pod", "FailedMount", "new", at="2026-01-01T10:00:02Z"),
        event("hvd-worker-0", "Pod", "FailedMount", "old", at="2025-01-01T10:00:01Z"),
        event("hvd-worker-0", "Pod", "Unhealthy", "startup probe", at="2026-01-01T10:00:01Z"),
        event("hvd-worker-0", "Pod", "Pulled", "fine", type="Normal"),
        event("another-0", "Pod", "FailedMount", "not ours"),
    ]
    lines = follow(play, "hvd", warnings=True)
    first = next(lines)
    assert (first.pod, first.text) == ("hvd-worker-0", "FailedMount: new")
    play.trained.set()
    assert list(lines) == []


def test_what_there_is_now() -> None:
    found = [line.text for line in past(Play([WORKER, MASTER], LINES), "hvd", tail=1)]
    assert found == ["w0", "m1", "m2"]


def test_which_pods_have_a_log() -> None:
    crashed = pod("a", "worker", {"terminated": {"exitCode": 1}})
    waiting = pod("b", "worker", CREATING)
    assert [has_log(found) for found in (crashed, waiting, WORKER)] == [True, False, True]
