"""What the master's main program decides about an attempt, without hosts and a launcher."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from hvd_pods.common.errors import LostHostError, RunError, WorkerLeftError
from hvd_pods.common.run import Run
from hvd_pods.master import attempts, ending, events, kube, main, preparation, progress, record
from tests.fakes.api import FakeApi
from tests.unit.podfiles.runs import make_record, make_run

JOB = {"metadata": {"name": "hvd-master-1"}, "spec": {"backoffLimit": 2}, "status": {}}


class Launcher:
    """Stands for launch.Launcher: no launcher runs."""

    stopped = False
    seconds = 0.0

    def was_stopped(self) -> bool:
        return self.stopped

    def reset(self) -> None:
        pass


class Progress(progress.Progress):
    """Progress without ranks that could be asked for it."""

    closed: ClassVar[list[bool]] = []
    is_nan = False

    def close(self, tells_last: bool) -> None:
        self.closed.append(tells_last)


class Master:
    """A master whose trainings end as a test says."""

    def __init__(self, server: FakeApi, patch: pytest.MonkeyPatch) -> None:
        self.server, self.api = server, kube.Api()
        self.events = events.EventRecorder(None)
        self.launcher: Any = Launcher()
        self.record = make_record(self.api)
        # How each training is to end, its run, and whether it was asked for its last step.
        self.ends: list[RunError | None] = []
        self.runs: list[Run] = []
        self.closed: list[bool] = []
        patch.setattr(Progress, "closed", self.closed)
        patch.setattr(record, "Progress", Progress)
        patch.setattr(main, "train", self._train)

    def _train(self, run: Run, *_: object) -> None:
        self.runs.append(run)
        problem = self.ends.pop(0)
        if problem:
            raise problem

    def attempt(self, *ends: RunError | None, **changes: Any) -> RunError | None:
        """Make one attempt."""
        self.ends += ends
        run, prepared = make_run(**changes), preparation.Preparation()
        return main.attempt(run, self.api, self.events, self.record, self.launcher, prepared)

    def make_attempts(self, *ends: RunError | None, **changes: Any) -> RunError | None:
        """Make attempts until the run is over."""
        self.ends += ends
        run = make_run(**changes)
        return main.make_attempts(run, self.api, self.events, self.record, self.launcher)

    def replicas(self, name: str) -> Any:
        item = self.server.find("apps/statefulsets", name)
        return item and item["spec"]["replicas"]


@pytest.fixture
def own(api_server: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Master:
    """A master of two groups of workers that a GitOps tool has scaled to other numbers."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.0)
    for name in ("hvd-cpu", "hvd-gpu"):
        item = {"metadata": {"name": name}, "spec": {"replicas": 5}}
        api_server.put("apps/statefulsets", item)
    api_server.put("core/configmaps", {"metadata": {"name": "hvd-run"}})
    api_server.put("batch/jobs", JOB)
    return Master(api_server, monkeypatch)


def test_an_attempt_begins_with_the_workers_that_the_run_starts_with(own: Master) -> None:
    assert own.attempt(None) is None
    assert (own.replicas("hvd-cpu"), own.replicas("hvd-gpu")) == (2, 1)
    assert own.closed == [True], "the last step is asked for"


def test_workers_of_another_master_are_not_scaled(own: Master) -> None:
    own.record._lease.lost = "master-b of job-2"
    own.attempt(None)
    assert (own.replicas("hvd-cpu"), own.replicas("hvd-gpu")) == (5, 5)


@pytest.mark.parametrize("was_training", [True, False])
def test_a_run_is_resumed_where_its_ranks_were_started_before(
    own: Master, was_training: bool
) -> None:
    own.record.was_training = was_training
    own.attempt(None)
    assert [run.resumed for run in own.runs] == [was_training]


@pytest.mark.parametrize(
    ("problem", "is_asked"), [(RunError("no"), True), (LostHostError("lost", 1), False)]
)
def test_only_hosts_that_are_there_are_asked_for_their_last_step(
    own: Master, problem: RunError, is_asked: bool
) -> None:
    assert own.attempt(problem) is problem
    assert own.closed == [is_asked]


@pytest.mark.parametrize(("fails", "is_nan"), [(True, True), (True, False), (False, True)])
def test_a_training_that_ended_with_nan_fails_where_the_run_asks_for_that(
    own: Master, monkeypatch: pytest.MonkeyPatch, fails: bool, is_nan: bool
) -> None:
    monkeypatch.setattr(Progress, "is_nan", is_nan)
    assert (own.attempt(None, failOnNaN=fails) is not None) is (fails and is_nan)


@pytest.mark.slow
def test_a_worker_that_left_is_no_failure_of_the_run(
    own: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it happens: the Job allows no retry."""
    own.server.put("batch/jobs", {**JOB, "spec": {"backoffLimit": 0}})
    left = [WorkerLeftError("w-0 was terminated", 143) for _ in range(3)]
    assert own.make_attempts(*left, None) is None
    assert (own.record.count.attempts, own.record.count.failures) == (4, 0)


@pytest.mark.slow
def test_failures_are_counted_until_none_may_follow(own: Master) -> None:
    ends = [RunError(f"attempt {number}") for number in range(4)]
    assert own.make_attempts(*ends) is ends[2]
    assert (own.record.count.attempts, own.record.count.failures) == (3, 3)


@pytest.mark.slow
def test_only_the_end_of_the_run_waits_long_for_the_job(
    own: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then, what the Job says decides what becomes of the workers."""
    waits: list[float | None] = []
    read_job = ending.read_job

    def read(api: kube.Api, stopped: bool, retry_seconds: float | None = None) -> Any:
        waits.append(retry_seconds)
        return read_job(api, stopped, retry_seconds)

    monkeypatch.setattr(main, "read_job", read)
    assert own.make_attempts(RunError("no"), None) is None
    assert waits == [kube.START_RETRY_SECONDS, kube.AGAIN_RETRY_SECONDS, None]
    waits.clear()
    own.launcher.stopped = True
    assert own.make_attempts(RunError("no")) is not None
    assert waits == [kube.START_RETRY_SECONDS, None]
