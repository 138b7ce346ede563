"""What a run asks of the API server, as docs/scale.md says it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import reduce

import pytest

from devtools.common.repository import DOCS
from hvd_pods.cluster.kube import DEFAULT_CALL_LIMITS
from hvd_pods.rules.effects import (
    CreateJobEvent,
    ListPods,
    ReadJob,
    ReadLease,
    ReadRecord,
    StartLauncher,
    WatchWorkers,
    WriteRecord,
)
from hvd_pods.rules.events import Event, Started, WorkerAnswers
from hvd_pods.rules.reported_progress import ReportedProgress
from hvdchart.run.change.session import LEASE_SECONDS, RENEWALS_PER_LEASE
from tests.support.world import OTHER, World, leased_job, one_group
from tests.unit.hvd_pods.support.master_pod import MasterPod

PAGE = DOCS / "scale.md"
HOUR = 3600.0
# Requests of an effect, where all goes well and the pods of missing workers exist.
COSTS = {
    WriteRecord: 1,
    ReadRecord: 1,
    ReadLease: 1,
    ListPods: 1,
    ReadJob: 2,
    CreateJobEvent: 1,
}
# A watch of the workers' addresses begins with a list.
WATCH = 2 * 60 / DEFAULT_CALL_LIMITS.watch_seconds
COMMAND = 60 / (LEASE_SECONDS / RENEWALS_PER_LEASE)


def rows() -> dict[str, tuple[float, float]]:
    """The page's table: requests a minute of one run, and a second of 100."""
    found = re.findall(r"^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text("utf-8"), re.M)
    return {what.strip(): (float(one), float(hundred)) for what, one, hundred in found}


def trains() -> World:
    world = World(one_group())
    world.train()
    return world


def is_kept() -> World:
    world = World(one_group(cleanup="Never"), job=leased_job(LEASE_SECONDS))
    world.train()
    return world


def trains_on_fewer() -> World:
    world = World(one_group(2, minimum=1))
    world.put(Started())
    world.settle(until=WatchWorkers)
    world.answers = [answer for answer in world.answers if not is_of_second_worker(answer[1])]
    world.settle(until=StartLauncher)
    return world


def is_of_second_worker(event: Event) -> bool:
    return isinstance(event, WorkerAnswers) and event.worker == "w-1"


def waits_for_workers() -> World:
    world = World(one_group(workers_timeout_seconds=9 * HOUR))
    world.put(Started())
    world.settle(until=WatchWorkers)
    world.answers = [answer for answer in world.answers if not isinstance(answer[1], WorkerAnswers)]
    return world


def waits_for_another() -> World:
    world = World(one_group(), record=dict(OTHER))
    world.put(Started())
    world.answer_all()
    return world


# What the row is called, the run, and what is asked besides the effects of the master's loop.
STATES: dict[str, tuple[Callable[[], World], float]] = {
    "trains": (trains, 0),
    "trains, and `dev`, `bench` or `launch` renews its lease": (is_kept, COMMAND),
    "trains on fewer workers than it has": (trains_on_fewer, WATCH),
    "waits for workers": (waits_for_workers, WATCH),
    "waits for another master of its release": (waits_for_another, 0),
}


def asked_in_an_hour(world: World) -> int:
    """How many requests the master's loop makes in an hour in which nothing else happens."""
    before = len(world.effects)
    until = world.now + HOUR
    while min(world.state.timers.values()) <= until:
        if "holder" in world.record:
            # The other master renews its lock.
            world.record["renewed"] = str(world.now)
        if world.job["metadata"]:
            world.job = leased_job(LEASE_SECONDS, str(world.now))
        world.fire()
        while world.answers:
            world.answer()
    return sum(COSTS.get(type(effect), 0) for effect in world.effects[before:])


@pytest.mark.parametrize("state", STATES)
def test_requests_of_a_run_are_those_of_the_page(state: str) -> None:
    begin, beside = STATES[state]
    a_minute = asked_in_an_hour(begin()) / 60 + beside
    # Each answer takes a moment.
    assert rows()[state] == pytest.approx((a_minute, a_minute * 100 / 60), rel=0.03)


def test_whole_run_asks_no_more_than_the_page_says(pod: MasterPod) -> None:
    pod.install("true")
    assert pod.run() == 0
    found = re.search(r"makes at most (\d+) requests", PAGE.read_text("utf-8"))
    assert found
    assert len(pod.api.requests) <= int(found[1])


def test_record_of_a_long_run_is_no_larger_than_the_page_says(pod: MasterPod) -> None:
    pod.install("true")
    assert pod.run() == 0
    record = pod.api.find("core/configmaps", "hvd-run")
    reported = {"steps": 20_000, "loss": 1 / 3, "samplesPerSecond": 100 / 3}
    progress = reduce(
        lambda so_far, step: so_far.take(
            {"step": step, **reported}, float(step), "2026-01-01T10:00:00Z"
        ),
        range(20_000),
        ReportedProgress(),
    )
    found = re.search(r"\| the record of a run, .* \| (\d+) kB \|", PAGE.read_text("utf-8"))
    assert found
    assert len(json.dumps(record)) + len(progress.entry()) < 1000 * int(found[1])
