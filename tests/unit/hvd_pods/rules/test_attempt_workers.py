"""Which workers an attempt uses, which are missing and why, and which are lost."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.rules.attempt_workers import FIRST_POD_READ_DELAY_SECONDS, MASTER_OFFLINE_FACTOR
from hvd_pods.rules.effects import (
    CreateJobEvent,
    DeletePods,
    Deliver,
    EndLauncher,
    FreezeAddresses,
    ListPods,
    Prepare,
    ScaleUp,
    StartLauncher,
    WriteRecord,
)
from hvd_pods.rules.events import (
    AttemptOver,
    PodsListed,
    Prepared,
    Started,
    Terminated,
    WorkerAnswers,
    WorkerProblem,
)
from hvd_pods.rules.missing_workers import REPAIR_TIMEOUT_SECONDS, REPORT_REPEAT_INTERVAL_SECONDS
from hvd_pods.rules.pod_replacement import REPLACE_INTERVAL_SECONDS
from hvd_pods.rules.run_state import Activity
from hvd_pods.shared.errors import WorkerTerminatedError
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.run_events import RunEvent
from tests.support.runs import make_run
from tests.support.world import WALL, World, one_group, pod
from tests.unit.hvd_pods.rules.trainings import go_on, launch_again


def waiting(world: World) -> World:
    """A master that waits for workers, of which none has answered; its launcher is prepared."""
    world.put(Started())
    world.settle(until=Prepare)
    world.answers = [answer for answer in world.answers if not isinstance(answer[1], WorkerAnswers)]
    world.answer_all()
    assert world.state.activity == Activity.WAITING_FOR_WORKERS
    return world


def answer(world: World, *workers: str) -> None:
    for worker in workers:
        world.put(WorkerAnswers(world.state.attempt.number, worker, pod(worker)), 0.1)


def list_pods(world: World, *pods: dict[str, Any], **more: Any) -> None:
    """Let the pods be listed as soon as the master asks for it."""
    before = len(world.of(ListPods))
    while len(world.of(ListPods)) == before:
        world.fire()
    world.answers.clear()
    listed = {pod["metadata"]["name"]: pod for pod in pods}
    world.put(PodsListed(world.state.attempt.number, listed, **more))


def list_pods_for(world: World, seconds: float, *pods: dict[str, Any], **more: Any) -> None:
    """As list_pods(), for some time or until the master no longer waits for workers."""
    until = world.now + seconds
    while world.state.activity == Activity.WAITING_FOR_WORKERS and world.now < until:
        list_pods(world, *pods, **more)


def keep_listing(world: World, *pods: dict[str, Any], times: int, **more: Any) -> None:
    """As list_pods(), so many times or until the master no longer waits for workers."""
    for _ in range(times):
        if world.state.activity == Activity.WAITING_FOR_WORKERS:
            list_pods(world, *pods, **more)


def missing_workers(world: World) -> list[str]:
    """The messages of the Events of missing workers."""
    events = world.of(CreateJobEvent)
    return [event.message for event in events if event.event == RunEvent.WORKERS_MISSING]


def worker(name: str, revision: str = "r1", uid: str = "", **parts: Any) -> dict[str, Any]:
    labels = {"hvdchart/revision": revision}
    metadata = {"name": name, "uid": uid or f"uid of {name}", "labels": labels}
    return {"metadata": {**metadata, **parts.pop("metadata", {})}, "status": {}, **parts}


GROUPS = [
    {"stateful_set": "a", "number": 2, "maximum": 3, "slots": 2, "revision": "r1"},
    {"stateful_set": "b", "number": 1, "maximum": 1, "slots": 4, "revision": "r1"},
]


def make_pods(world: World, revision: str, seconds: float) -> None:
    """Let the StatefulSet make another pod of this revision for each that the master deletes."""
    until = world.now + seconds
    while world.state.activity == Activity.WAITING_FOR_WORKERS and world.now < until:
        deleted = len(world.of(DeletePods))
        # It has no pod for a moment.
        list_pods(world)
        made = worker("w-0", revision, uid=f"uid {world.now}")
        while (
            world.state.activity == Activity.WAITING_FOR_WORKERS
            and world.now < until
            and len(world.of(DeletePods)) == deleted
        ):
            list_pods(world, made)


@pytest.mark.parametrize("workers", [["a-0", "a-1", "a-2"], ["b-0", "a-1"]])
def test_run_does_not_start_before_there_are_enough_workers_of_each_group(
    workers: list[str],
) -> None:
    world = waiting(World(make_run(groups=GROUPS)))
    answer(world, *workers)
    assert not world.of(Deliver)


@pytest.mark.parametrize(
    ("workers", "used", "recorded"),
    [
        (["b-0", "a-2", "a-0"], ["a-0", "a-2", "b-0"], '{"a": "0,2", "b": "0"}'),
        (["a-1", "a-0", "b-0"], ["a-0", "a-1", "b-0"], '{"a": "0-1", "b": "0"}'),
    ],
)
def test_run_starts_in_its_order_with_enough_workers_of_each_group(
    workers: list[str], used: list[str], recorded: str
) -> None:
    world = waiting(World(make_run(groups=GROUPS)))
    answer(world, *workers)
    world.settle(until=StartLauncher)
    assert [list(launch.addresses) for launch in world.of(StartLauncher)] == [used]
    assert world.of(FreezeAddresses), "only a run with a minimum has a use for others later"
    assert "of 1 spares" in world.of(CreateJobEvent)[-2].message
    assert world.of(WriteRecord)[-1].data["workers"] == recorded


def test_each_worker_that_comes_extends_the_deadline() -> None:
    world = waiting(World(one_group(3)))
    began = world.now
    answer(world, "w-0")
    world.now += 50
    answer(world, "w-1")
    world.now += 50
    assert world.state.activity == Activity.WAITING_FOR_WORKERS
    go_on(world, lambda: world.state.activity != Activity.WAITING_FOR_WORKERS)
    assert world.now - began == pytest.approx(50 + 60, abs=2)


def test_run_whose_workers_do_not_come_fails_for_good() -> None:
    """Another attempt would wait for the same workers."""
    world = waiting(World(one_group(3)))
    answer(world, "w-0", "w-1")
    code, problem = world.end()
    assert code == 1
    assert "1 of 3 workers did not answer within" in problem
    assert len(world.of(Prepare)) == 1


REFUSALS = {"w": "exceeded quota: small"}


def test_missing_workers_are_reported_with_what_pods_and_connections_say() -> None:
    world = waiting(World(one_group()))
    attempt = world.state.attempt.number
    world.put(WorkerProblem(attempt, "w-0", NoAnswer("port 2222 does not answer")))
    began = world.now
    list_pods(world, worker("w-0"), refusals=REFUSALS)
    assert world.now - began <= FIRST_POD_READ_DELAY_SECONDS
    (line,) = [line for line in world.logged().splitlines() if line.startswith("waiting for 2")]
    assert "w-0: phase unknown; port 2222 does not answer" in line
    assert "w-1: the pod does not exist: exceeded quota: small" in line


def test_unchanged_report_is_repeated_only_after_a_while() -> None:
    world = waiting(World(one_group()))
    list_pods(world, worker("w-0"), refusals=REFUSALS)
    list_pods(world, worker("w-0"), refusals=REFUSALS)
    assert world.logged().count("waiting for 2 of 2") == 1
    world.now += REPORT_REPEAT_INTERVAL_SECONDS
    list_pods(world, worker("w-0"), refusals=REFUSALS)
    assert world.logged().count("waiting for 2 of 2") == 2


def test_report_says_that_pods_cannot_be_read() -> None:
    world = waiting(World(one_group()))
    list_pods(world, problem="503: away")
    assert "pods: 503: away" in world.logged()


@pytest.mark.promise("a thousand missing workers cost one list and a short message")
def test_a_thousand_missing_workers_cost_one_list_and_a_short_message() -> None:
    world = waiting(World(one_group(1000)))
    refusals = {"w": "exceeded quota: " + "x" * 5000}
    list_pods(world, *[worker(f"w-{number}") for number in range(0, 1000, 2)], refusals=refusals)
    assert len(world.of(ListPods)) == 1
    assert not world.of(DeletePods)
    (line,) = [line for line in world.logged().splitlines() if line.startswith("waiting for 1000")]
    assert len(line) < 1000
    assert "w-[0,2,4,6,8,10,12,14,...] (500 workers)" in line


def test_workers_that_are_missing_are_created_again() -> None:
    world = waiting(World(one_group(2, 3)))
    list_pods(world, worker("w-0"))
    (effect,) = world.of(ScaleUp)
    assert (effect.stateful_set, effect.number, effect.below) == ("w", 3, 2)


def test_pods_in_the_way_are_replaced() -> None:
    world = waiting(World(one_group(4)))
    late = {"deletionTimestamp": "2026-09-21T00:00:00Z"}
    assert WALL > 1_789_957_000, "which is long ago"
    pods = [
        worker("w-0", "r0"),
        worker("w-1", metadata=late),
        worker("w-2", "r0", metadata={"deletionTimestamp": "2036-01-01T00:00:00Z"}),
        worker("w-3"),
    ]
    list_pods(world, *pods)
    list_pods(world, *pods)
    replaced = [({"w-0": "uid of w-0"}, None), ({"w-1": "uid of w-1"}, 0)]
    # A deletion that has failed is tried again.
    assert [
        (effect.uids, effect.grace_period_seconds) for effect in world.of(DeletePods)
    ] == 2 * replaced
    assert world.logged().count("replacing") == 2, "each is said once"


def test_stateful_set_that_makes_pods_of_another_revision_ends_the_run() -> None:
    """A rolled-back StatefulSet would do so for ever, and each would be deleted."""
    world = waiting(World(one_group(1, workers_timeout_seconds=3600)))
    began = world.now
    make_pods(world, "r0", 4 * REPAIR_TIMEOUT_SECONDS)
    assert "StatefulSet w makes pods" in world.logged()
    assert len(world.of(DeletePods)) <= 3 + (world.now - began) / REPLACE_INTERVAL_SECONDS
    code, problem = world.end()
    assert code == 78, "no attempt can help"
    assert "helm upgrade" in problem


def test_stateful_set_that_makes_pods_of_another_revision_may_be_mended() -> None:
    world = waiting(World(one_group(1, workers_timeout_seconds=3600)))
    make_pods(world, "r0", 0.75 * REPAIR_TIMEOUT_SECONDS)
    assert world.of(DeletePods)
    make_pods(world, "r1", 3 * REPAIR_TIMEOUT_SECONDS)
    assert world.state.activity == Activity.WAITING_FOR_WORKERS


def test_deleted_stateful_set_is_named_and_not_waited_for_as_long_as_workers() -> None:
    world = waiting(World(one_group(1, workers_timeout_seconds=3600)))
    list_pods_for(world, 2 * REPAIR_TIMEOUT_SECONDS, gone=["w"])
    assert "StatefulSet w" in world.logged()
    assert world.end()[0] == 78


def test_deleted_stateful_set_may_come_back() -> None:
    world = waiting(World(one_group(1, workers_timeout_seconds=3600)))
    list_pods_for(world, REPAIR_TIMEOUT_SECONDS / 2, gone=["w"])
    list_pods_for(world, 1.5 * REPAIR_TIMEOUT_SECONDS)
    assert world.state.activity == Activity.WAITING_FOR_WORKERS


def test_stale_worker_that_answers_is_looked_at_at_once() -> None:
    world = waiting(World(one_group()))
    problem = WorkerProblem(world.state.attempt.number, "w-0", NoAnswer("it sent x", is_stale=True))
    assert any(isinstance(effect, ListPods) for effect in world.put(problem))


def test_master_that_ends_or_trains_replaces_no_pods() -> None:
    """Pods that are read after that may be those of the next run."""
    trains = World(one_group())
    over = World(one_group())
    stopped = waiting(World(one_group()))
    trains.train()
    over.train()
    over.end_launcher(0)
    stopped.put(Terminated())

    def replaces_stale(world: World) -> bool:
        stale = {"w-0": worker("w-0", "r0")}
        world.put(PodsListed(world.state.attempt.number, stale))
        return bool(world.of(DeletePods))

    assert [replaces_stale(world) for world in (trains, over, stopped)] == [False] * 3


IMAGE = {"reason": "InvalidImageName", "message": "couldn't parse image"}
BROKEN = {"containerStatuses": [{"name": "w", "image": "?", "state": {"waiting": IMAGE}}]}


def test_problem_that_lasts_ends_the_run() -> None:
    world = waiting(World(one_group(1, workers_timeout_seconds=600)))
    keep_listing(world, worker("w-0", status=BROKEN), times=30)
    assert len(missing_workers(world)) == 1, "announced once"
    code, text = world.end()
    assert code == 78, "no attempt can help"
    assert "; what to do: " in text, "the log and hvdchart show it as one line"


def test_problem_that_lasts_does_not_end_the_run_while_spares_are_left() -> None:
    world = waiting(World(one_group(1, 2, workers_timeout_seconds=600)))
    keep_listing(world, worker("w-0", status=BROKEN), worker("w-1"), times=30)
    assert len(missing_workers(world)) == 1, "announced once"
    assert world.state.activity == Activity.WAITING_FOR_WORKERS


GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


@pytest.mark.parametrize(
    ("trained", "status", "is_deleted"),
    [("uid-1", {}, True), ("", {}, False), ("uid-1", {"conditions": [GATED]}, False)],
    ids=["deleted", "never had slices", "in a queue"],
)
def test_only_a_deleted_service_is_not_waited_for_as_long_as_workers(
    trained: str, status: dict[str, Any], is_deleted: bool
) -> None:
    world = waiting(World(one_group(1, workers_timeout_seconds=1200), record={"trained": trained}))
    world.put(WorkerProblem(world.state.attempt.number, "w-0", NoAnswer("x", lacks_service=True)))
    list_pods_for(world, REPAIR_TIMEOUT_SECONDS + 10, worker("w-0", status=status))
    assert (world.state.activity != Activity.WAITING_FOR_WORKERS) is is_deleted
    assert ["Service" in message for message in missing_workers(world)] == [True] * is_deleted


def test_time_in_a_queue_does_not_count() -> None:
    pods = [worker(f"w-{number}", status={"conditions": [GATED]}) for number in (0, 1)]
    world = waiting(World(one_group()))
    keep_listing(world, *pods, times=100)
    assert world.state.activity == Activity.WAITING_FOR_WORKERS
    assert world.state.attempt_workers.deadline > world.now


@pytest.mark.parametrize(
    ("silent", "all_workers_silent", "is_lost"),
    [
        (14.0, False, False),
        (15.0, False, True),
        (15.0, True, False),
        (15.0 * MASTER_OFFLINE_FACTOR, True, True),
    ],
)
def test_silent_worker_is_lost_unless_the_master_is_offline(
    silent: float, all_workers_silent: bool, is_lost: bool
) -> None:
    world = World(one_group(lost_after_seconds=15))
    attempt = world.train()
    world.put(WorkerProblem(attempt, "w-1", NoAnswer("closed"), 0.0, all_workers_silent))
    assert not world.of(EndLauncher), "a connection that breaks is no loss yet"
    world.put(WorkerProblem(attempt, "w-1", NoAnswer("closed"), silent, all_workers_silent))
    assert bool(world.of(EndLauncher)) is is_lost
    assert ("network" in world.logged()) is all_workers_silent


def test_master_that_is_asked_to_end_waits_for_no_workers() -> None:
    world = waiting(World(one_group()))
    world.put(Terminated())
    assert world.end()[0] == 143


def test_workers_wait_for_a_slow_launcher() -> None:
    """Such as packages in the master, which the deadline of workers is not for."""
    world = World(one_group(workers_timeout_seconds=10))
    world.put(Started())
    world.settle(until=Prepare)
    prepared = next(answer for answer in world.answers if isinstance(answer[1], Prepared))
    world.answers.remove(prepared)
    go_on(world, lambda: world.state.activity == Activity.WAITING_FOR_WORKERS and not world.answers)
    world.now += 600
    assert world.state.activity == Activity.WAITING_FOR_WORKERS
    world.put(prepared[1])
    assert world.of(Deliver)


GATHERED = {"run": "run-1", "settingsHash": "settings-1", "attempts": "1"}


@pytest.mark.parametrize(
    ("before", "api", "expected"),
    [
        pytest.param({}, True, [False, False], id="the first run"),
        pytest.param({"run": "run-0"}, True, [True, False], id="another run"),
        pytest.param(GATHERED, True, [True, False], id="the same run, not launched"),
        pytest.param({**GATHERED, "trained": "uid-1"}, True, [False, False], id="the same run"),
        pytest.param({}, False, [True, False], id="no record"),
    ],
)
def test_workers_save_what_another_run_has_left_before_ranks_remove_it(
    before: dict[str, str], api: bool, expected: list[bool]
) -> None:
    world = World(one_group(id="run-1", has_api_access=api, backoff_limit=2), record=before)
    world.train()
    world.put(AttemptOver(WorkerTerminatedError("w-0 left", 1)))
    launch_again(world)
    assert [effect.saves_other_states for effect in world.of(Deliver)] == expected
