"""The spans of a run follow from the states of its masters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hvd_pods.master.spans import Span, Trace, follow
from hvd_pods.rules.decide import decide
from hvd_pods.rules.effects import Prepare
from hvd_pods.rules.events import (
    AttemptOver,
    Cause,
    Moment,
    Prepared,
    RecordChanged,
    Started,
    Terminated,
)
from hvd_pods.rules.retries import Retries
from hvd_pods.rules.state import Activity, RunState
from hvd_pods.shared.errors import ConfigurationError, ResizedError
from tests.support.world import DELETED, JOB, OTHER, SUSPENDED, WALL, World, one_group
from tests.unit.hvd_pods.rules.random_events import happen_by
from tests.unit.hvd_pods.rules.trainings import CAUSE, end_with, report, training

# A Job that Kubernetes has started at WALL, before its master began.
STARTED = {**JOB, "status": {"startTime": "2026-09-21T14:13:20Z"}}


def spans_of(world: World) -> list[Span]:
    """The spans of a master that has seen the world's history."""
    assignment = world.state.assignment
    state = RunState(
        assignment, retries=Retries(None if world.run.has_api_access else world.run.backoff_limit)
    )
    trace = Trace(state)
    spans: list[Span] = []
    for moment, event, _ in world.history:
        state, _ = decide(state, event, moment)
        trace, ended = follow(trace, state, moment)
        spans += ended
    return spans


def tree(spans: list[Span]) -> Iterator[tuple[str, str]]:
    """The name of each span, with that of its parent; empty for one that is not there."""
    names = {span.id: span.name for span in spans}
    return ((span.name, names.get(span.parent, "")) for span in spans)


def of(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def finish(world: World) -> list[Span]:
    begin(world)
    world.now += 5.0
    world.end_launcher()
    world.end()
    return spans_of(world)


def fail(world: World, cause: Cause | None = None) -> None:
    """Let the attempt fail, and the next one begin to train."""
    end_with(world, 1, cause)
    begin(world)


def begin(world: World) -> None:
    """Come to the training of an attempt."""
    while world.state.activity != Activity.TRAINING:
        if world.answers:
            world.answer()
        else:
            assert world.fire()


def recovered() -> World:
    """A run whose second attempt continues where the first one has failed."""
    world = World(one_group(results_timeout_seconds=60), job=STARTED)
    world.train()
    world.answer_all()
    world.now += 20.0
    report(world, 1)
    world.now += 100.0
    fail(world, CAUSE)
    report(world, 2)
    return world


def test_a_run_is_a_tree_of_its_attempts_and_their_phases() -> None:
    spans = finish(recovered())
    phases = [("gather workers", "attempt"), ("deliver code", "attempt")]
    started = [("start ranks", "train"), ("train", "attempt"), ("attempt", "run")]
    again = [*phases, ("recover", "run"), *started]
    end = [("store results", "run"), ("run", "")]
    assert sorted(tree(spans)) == sorted([*phases, *started, *again, *end])
    assert len({span.id for span in spans}) == len(spans)
    assert len({span.trace for span in spans}) == 1


def test_a_span_says_what_it_is_of_and_why_it_has_failed() -> None:
    spans = finish(recovered())
    first, second = of(spans, "attempt")
    (run,) = of(spans, "run")
    size = {"hvdchart.ranks": 4, "hvdchart.workers": 2}
    error = {"error.type": "LaunchError", "process.exit.code": 1}
    assert first.attributes == {"hvdchart.attempt": 1, **size, **error}
    assert CAUSE.text in first.failure
    assert (second.attributes, second.failure) == ({"hvdchart.attempt": 2, **size}, "")
    counts = {"hvdchart.attempts": 2, "hvdchart.failures": 1}
    whole = {"hvdchart.state": "Finished", "hvdchart.mode": "mpirun"}
    assert (run.attributes, run.failure) == ({**whole, **size, **counts}, "")


def test_a_span_lasts_as_long_as_what_it_is_of() -> None:
    world = recovered()
    spans = finish(world)
    start, _ = of(spans, "start ranks")
    train, again = of(spans, "train")
    (recover,) = of(spans, "recover")
    (run,) = of(spans, "run")
    assert start.began == train.began
    assert start.ended - start.began == pytest.approx(21.0, abs=0.5)
    assert train.ended - train.began == pytest.approx(121.0, abs=0.5)
    assert (recover.began, recover.ended) == (train.ended, of(spans, "start ranks")[1].ended)
    assert again.began < recover.ended < again.ended
    assert run.began == WALL, "the Job was there before its master"
    assert max(span.ended for span in spans) == run.ended


def test_a_clock_that_is_set_moves_no_span() -> None:
    world = recovered()
    finish(world)
    before = spans_of(world)
    world.history = [
        (Moment(now, wall + 5000.0 * (number > 9)), event, effects)
        for number, ((now, wall), event, effects) in enumerate(world.history)
    ]
    # The Job's start is told by another clock.
    assert [s._replace(began=0) for s in spans_of(world)] == [s._replace(began=0) for s in before]


def test_a_script_that_reports_nothing_has_no_span_that_ends_with_a_step() -> None:
    world = training()
    fail(world)
    spans = finish(world)
    assert len(of(spans, "train")) == 2
    assert not {"start ranks", "recover"} & {span.name for span in spans}


def test_a_pause_between_two_attempts_is_in_none_of_them() -> None:
    world = training()
    fail(world)
    fail(world)
    spans = finish(world)
    (pause,) = of(spans, "pause")
    assert ("pause", "run") in tree(spans)
    assert pause.ended - pause.began == pytest.approx(5.0)
    assert of(spans, "attempt")[1].ended <= pause.began


def test_an_attempt_that_ends_for_more_workers_has_not_failed() -> None:
    world = training()
    world.put(AttemptOver(ResizedError("workers have come", 143)))
    spans = finish(world)
    assert [span.failure for span in of(spans, "attempt")] == ["", ""]


def test_a_run_that_fails_says_why() -> None:
    world = World(one_group())
    world.put(Started())
    world.settle(until=Prepare)
    world.put(Prepared(1, ConfigurationError("no mpirun")))
    world.end()
    (run,) = of(spans_of(world), "run")
    assert run.attributes["hvdchart.state"] == "Failed"
    assert run.attributes["error.type"] == "ConfigurationError"
    assert run.failure == "no mpirun"


def terminate(job: Any) -> Callable[[World], None]:
    """This pod is asked to end, when this has become of the Job."""

    def terminate(world: World) -> None:
        world.job = job
        world.put(Terminated())

    return terminate


def replace(world: World) -> None:
    world.put(RecordChanged("renew", OTHER))


@pytest.mark.parametrize(
    ("happens", "is_end"),
    [
        (terminate(JOB), False),
        (terminate(SUSPENDED), False),
        (terminate(DELETED), True),
        (terminate(None), True),
        (replace, False),
    ],
)
def test_the_span_of_the_run_ends_when_no_other_master_of_its_job_continues(
    happens: Callable[[World], None], is_end: bool
) -> None:
    """The attempt has ended in any case."""
    world = training()
    happens(world)
    world.end()
    spans = spans_of(world)
    assert of(spans, "attempt")[0].failure
    assert bool(of(spans, "run")) == is_end


def test_the_next_master_continues_with_the_trace() -> None:
    first = training()
    terminate(JOB)(first)
    first.end()
    record = {"run": first.run.id, "settingsHash": first.run.settings_hash, "attempts": "1"}
    second = World(first.run, record=record, now=2000.0)
    second.train()
    second.answer_all()
    spans = [*spans_of(first), *finish(second)]
    assert len({span.trace for span in spans}) == 1
    assert {parent for name, parent in tree(spans) if name == "attempt"} == {"run"}
    assert [span.attributes["hvdchart.attempt"] for span in of(spans, "attempt")] == [1, 2]
    assert len({span.id for span in spans}) == len(spans)


def test_a_master_that_repeats_the_end_of_a_run_has_no_span() -> None:
    run = one_group()
    world = World(run, record={"run": run.id, "state": "Finished"})
    world.put(Started())
    world.end()
    assert spans_of(world) == []


@pytest.mark.parametrize("api", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_spans_are_in_their_parents(seed: int, api: bool) -> None:
    world = World(
        one_group(lost_after_seconds=15, fail_on_nan=True, has_api_access=api, backoff_limit=3)
    )
    chance = random.Random(seed)  # noqa: S311
    world.train()
    happen_by(world, chance, times=300)
    world.put(Terminated())
    world.end()
    spans = spans_of(world)
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans) > 3
    assert all(span.began <= span.ended for span in spans)
    pairs = [(by_id[span.parent], span) for span in spans if span.parent in by_id]
    outside = [
        span
        for parent, span in pairs
        if not parent.began <= span.began <= span.ended <= parent.ended
    ]
    assert outside == []
