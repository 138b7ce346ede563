"""Which master controls the workers, and what the record says of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hvd_pods.rules import record_lock
from hvd_pods.rules.effects import (
    CreateJobEvent,
    EndLauncher,
    Exit,
    Prepare,
    ReleaseRecord,
    ScaleDown,
    StartLauncher,
    WriteRecord,
)
from hvd_pods.rules.events import (
    Event,
    JobRead,
    ProgressReported,
    RecordChanged,
    RecordFailed,
    RecordPurpose,
    RecordWritten,
    Started,
    Terminated,
)
from hvd_pods.rules.job_state import read_found_job
from hvd_pods.rules.record_lock import (
    LOCK_DURATION_SECONDS,
    RECORD_POLL_INTERVAL_SECONDS,
)
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import JOB, LATER, OTHER, WALL, World, one_group
from tests.unit.hvd_pods.rules.trainings import go_on, put_each

HELD = {**OTHER, "renewed": "1"}
HELD_NOW = RecordWritten(RecordPurpose.TAKE)
FORBIDDEN = RecordFailed(RecordPurpose.TAKE, 403, "forbidden", is_temporary=False)


def started(record: dict[str, str], *events: Event, **changes: Any) -> World:
    """A master that has read a record, after which these events happen."""
    world = World(one_group(**changes), record=record)
    world.put(Started())
    world.answer()
    put_each(world, events)
    return world


def conclude(world: World, record: dict[str, str] | None) -> None:
    """Let the Job be read after a failed launch, and the record with it."""
    world.end_launcher(1)
    while not any(isinstance(event, JobRead) for _, event in world.answers):
        world.answer()
    world.answers = [answer for answer in world.answers if not isinstance(answer[1], JobRead)]
    world.put(JobRead(read_found_job(JOB), record=record))


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"holder": ""},
        {"holder": "own", "holderUid": "uid-0"},
        # An earlier pod of this very Job: the controller starts one when the one before has ended.
        {"holder": "earlier", "holderUid": "uid-1"},
    ],
)
def test_free_record_is_taken_at_once_with_a_new_fence_number(record: dict[str, str]) -> None:
    world = started({**record, "fence": "5"})
    (write,) = world.of(WriteRecord)
    assert write.purpose == RecordPurpose.TAKE
    assert write.is_holder
    assert write.data == {}
    assert write.fence >= (WALL + world.now) * 1000 - 20
    newer = started({**record, "fence": str(LATER)}).of(WriteRecord)[0]
    assert newer.fence > LATER + 999, "the earlier holder may have begun attempts since"


def test_holder_is_waited_for_until_it_gives_the_record_back() -> None:
    world = started(dict(HELD))
    assert world.of(CreateJobEvent)[0].event == RunEvent.WAITING

    def renew(renewed: str) -> None:
        world.record["renewed"] = renewed
        world.fire()
        world.answer()

    renew("2")
    renew("3")
    assert len(world.of(CreateJobEvent)) == 1, "said once"
    assert not world.of(WriteRecord)
    world.record = {**HELD, "holder": ""}
    world.fire()
    world.answer()
    assert world.of(WriteRecord)


def test_holder_that_does_not_renew_is_replaced_and_notified() -> None:
    world = started(dict(HELD))
    began = world.now
    world.settle(until=WriteRecord)
    assert world.now - began == pytest.approx(
        LOCK_DURATION_SECONDS, abs=2 * RECORD_POLL_INTERVAL_SECONDS
    )
    assert world.of(WriteRecord)[0].data == {"superseded": "uid-2"}


@pytest.mark.parametrize(
    ("record", "events", "code"),
    [({**HELD, "superseded": "uid-1"}, [], 78), (HELD, [Terminated()], 143)],
)
def test_master_that_may_not_have_the_record_ends_and_changes_nothing(
    record: dict[str, str], events: list[Event], code: int
) -> None:
    world = started(dict(record), *events)
    assert world.end()[0] == code
    assert not [
        *world.of(WriteRecord),
        *world.of(ReleaseRecord),
        *world.of(ScaleDown),
    ]


@pytest.mark.parametrize(("status", "goes_on"), [(403, True), (404, True), (503, False)])
def test_unreadable_record_is_done_without_only_without_permission(
    status: int, goes_on: bool
) -> None:
    world = World(one_group())
    world.put(Started())
    world.answers.clear()
    world.put(RecordFailed(RecordPurpose.READ, status, "no", is_temporary=status == 503))
    world.settle(until=StartLauncher if goes_on else Exit)
    assert bool(world.of(StartLauncher)) is goes_on


@pytest.mark.parametrize(("is_temporary", "is_held"), [(True, True), (False, False)])
def test_training_begins_although_the_record_cannot_be_written(
    is_temporary: bool, is_held: bool
) -> None:
    world = started({})
    world.answers.clear()
    world.put(RecordFailed(RecordPurpose.TAKE, 503 if is_temporary else 403, "no", is_temporary))
    world.settle(until=StartLauncher)
    assert world.state.record_lock.is_held is is_held
    assert (TimerKind.RENEW in world.state.timers) is is_held


def test_the_curve_of_the_loss_continues_where_the_master_before_has_left_it() -> None:
    progress = json.dumps({"step": 20, "losses": [[10, 0.5], [20, 0.25]]})
    run = {"run": "run-1", "settingsHash": "settings-1", "attempts": "1", "progress": progress}
    world = started(run)
    world.settle(until=StartLauncher)
    assert json.loads(world.state.record_data()["progress"]) == {"losses": [[10, 0.5], [20, 0.25]]}
    reported = {"step": 15, "loss": 0.375}
    world.put(ProgressReported(world.state.attempt.number, reported), 1.0)
    assert json.loads(world.state.record_data()["progress"])["losses"] == [[10, 0.5], [15, 0.375]]
    other = started({**run, "run": "run-0"})
    other.settle(until=StartLauncher)
    assert other.state.record_data()["progress"] == ""


def test_renewals_do_not_pile_up_while_the_api_server_is_slow() -> None:
    world = World(one_group())
    world.train()
    world.answers.clear()
    world.effects.clear()
    world.fire()
    world.fire()
    assert [effect.purpose for effect in world.of(WriteRecord)] == [RecordPurpose.RENEW]
    world.put(RecordFailed(RecordPurpose.RENEW, 503, "away"))
    world.fire()
    assert [effect.purpose for effect in world.of(WriteRecord)] == [
        RecordPurpose.RENEW,
        RecordPurpose.RENEW,
    ]


@pytest.mark.parametrize(
    ("data", "is_lost"),
    [
        ({"holder": "own", "fence": "1"}, False),
        ({"holder": "", "fence": "1"}, False),
        ({"holder": "other", "fence": str(LATER)}, True),
        ({"holder": "", "fence": str(LATER)}, True),
        # No master has written these: it would have a higher fence number, which is a time.
        ({"holder": "x"}, False),
        ({"holder": "other", "fence": "1"}, False),
        ({"holder": "other", "fence": str(10**17)}, False),
        ({"fence": "x" * 5000}, False),
    ],
)
def test_record_that_was_changed_is_lost_only_to_another_master(
    data: dict[str, str], is_lost: bool
) -> None:
    world = World(one_group())
    world.train()
    effects = world.put(RecordChanged(RecordPurpose.RENEW, data, 1))
    assert any(isinstance(effect, EndLauncher) for effect in effects) is is_lost
    writes = [effect for effect in effects if isinstance(effect, WriteRecord)]
    assert [write.changes for write in writes] == ([] if is_lost else [1])


@pytest.mark.parametrize(
    "purpose", [RecordPurpose.TAKE, RecordPurpose.RENEW, RecordPurpose.BEGIN_ATTEMPT]
)
def test_record_of_a_later_release_ends_the_earlier_master(
    purpose: RecordPurpose,
) -> None:
    """It would tell the next run of its own attempts, and begin that one's second."""
    world = World(one_group(cleanup="Always"))
    world.train()
    effects = world.put(RecordChanged(purpose, {}, 1, is_other=True))
    assert any(isinstance(effect, EndLauncher) for effect in effects)
    code, problem = world.end()
    assert code == 78
    assert "later release" in problem
    assert not world.of(ScaleDown)


@pytest.mark.parametrize(
    ("code", "activity", "of_the_master"),
    [
        *(
            (0, activity, 0)
            for activity in (Activity.FINDING_CAUSE, Activity.DECIDING_RETRY, Activity.FINISHING)
        ),
        *((1, activity, 78) for activity in (Activity.FINDING_CAUSE, Activity.DECIDING_RETRY)),
    ],
)
def test_finished_training_succeeds_without_its_record(
    code: int, activity: Activity, of_the_master: int
) -> None:
    world = World(one_group(cleanup="Always"))
    world.train()
    world.end_launcher(code)
    go_on(world, lambda: world.state.activity == activity)
    world.record = dict(OTHER)
    world.put(RecordChanged(RecordPurpose.RENEW, dict(OTHER), 1))
    assert world.end()[0] == of_the_master
    assert not world.of(ScaleDown), "the workers are the other master's"


def test_master_that_was_replaced_counts_no_failure_and_leaves_the_workers() -> None:
    """Its ranks fail first, because the workers of the newer master refuse it."""
    world = World(one_group(cleanup="Always"))
    world.train()
    conclude(world, dict(OTHER))
    assert world.end()[0] == 78
    assert world.state.failures == 0
    assert len(world.of(Prepare)) == 1
    assert not world.of(ScaleDown)


@pytest.mark.parametrize("record", [None, {}, {"holder": "own", "fence": "1"}])
def test_master_that_was_not_replaced_counts_its_failure(record: dict[str, str] | None) -> None:
    world = World(one_group())
    world.train()
    conclude(world, record)
    assert world.state.failures == 1


@pytest.mark.parametrize(
    ("record", "taken", "scales"),
    [
        pytest.param({"holder": "own", "fence": "1"}, HELD_NOW, True, id="it holds the record"),
        pytest.param(dict(OTHER), HELD_NOW, False, id="another master does"),
        pytest.param(None, HELD_NOW, False, id="nobody can tell"),
        pytest.param(None, FORBIDDEN, True, id="nobody ever held it"),
    ],
)
def test_workers_are_scaled_unless_another_master_has_the_record(
    record: dict[str, str] | None, taken: Event, scales: bool
) -> None:
    world = started({}, cleanup="Always")
    world.answers.clear()
    world.put(taken)
    world.settle(until=StartLauncher)
    world.end_launcher(0)
    go_on(world, lambda: world.state.activity == Activity.FINISHING)
    world.answers.clear()
    world.put(RecordFailed(RecordPurpose.END_RUN, 403, "forbidden", is_temporary=False))
    world.answers.clear()
    world.put(JobRead(read_found_job(JOB), record=record))
    assert world.end() == (0, "")
    assert bool(world.of(ScaleDown)) is scales


def test_record_that_cannot_be_written_is_reported_once_for_each_reason() -> None:
    world = World(one_group())
    world.train()
    world.put(RecordFailed(RecordPurpose.RENEW, 404, "404: gone", is_temporary=False))
    world.put(RecordFailed(RecordPurpose.RENEW, 404, "404: gone", is_temporary=False))
    world.put(RecordFailed(RecordPurpose.RENEW, 403, "403: forbidden", is_temporary=False))
    world.put(RecordFailed(RecordPurpose.RENEW, 403, "403: forbidden", is_temporary=False))
    assert [world.logged().count(why) for why in ("404: gone", "403: forbidden")] == [1, 1]
    world.put(RecordWritten(RecordPurpose.RENEW))
    world.put(RecordFailed(RecordPurpose.RENEW, 403, "403: forbidden", is_temporary=False))
    assert world.logged().count("403: forbidden") == 2


ENDED = {"run": "run-1", "settingsHash": "settings-1", "uid": "uid-0", "time": "t"}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({**ENDED, "state": "Finished"}, 0),
        ({**ENDED, "state": "Finished", "settingsHash": "others"}, 0),
        ({**ENDED, "state": "Failed", "reason": "no"}, 78),
    ],
)
def test_run_that_has_ended_is_not_repeated(data: dict[str, str], code: int) -> None:
    world = started(data)
    assert world.end()[0] == code
    assert not world.of(StartLauncher)
    assert all(write.purpose == RecordPurpose.TAKE for write in world.of(WriteRecord))
    assert bool(world.of(ScaleDown)) is (code == 0), "as `cleanup` says"


@pytest.mark.parametrize(
    "data",
    [
        {**ENDED, "state": "Failed", "settingsHash": "others"},
        # The last attempt of this Job may have expected that no other one would follow.
        {**ENDED, "state": "Failed", "uid": "uid-1"},
        {**ENDED, "state": "Running"},
        {**ENDED, "state": "Finished", "run": "run-0"},
    ],
)
def test_run_is_begun_if_another_one_has_ended_or_this_one_has_not(data: dict[str, str]) -> None:
    world = started(data)
    world.settle(until=StartLauncher)
    assert world.of(StartLauncher)


# A fence number that workers accept just now.
LATEST = str(int(WALL * 1000) + 2 * record_lock.MAX_AHEAD_MILLISECONDS - 1)
NUMBERS = st.sampled_from(["", "x", "-1", "9" * 18, "9" * 5000, "٣", str(LATER)]) | st.text()
WORDS = st.sampled_from(["own", "uid-1", "run-1", "settings-1", "Finished", "Failed"]) | NUMBERS
KEYS = ("holder", "holderUid", "holderJob", "renewed", "superseded", "run", "settingsHash", "state")
RECORDS = st.dictionaries(
    st.sampled_from([*KEYS, "uid", "time", "reason", "trained", "workers"]), WORDS
)
CURVES = [
    "[]",
    '{"losses": 3}',
    '{"losses": [[1, "x"], 2]}',
    '{"losses": [[1e999, 1e999]]}',
    "[" * 9999,
]
COUNTS = st.fixed_dictionaries(dict.fromkeys(("attempts", "failures", "fence"), NUMBERS))


@pytest.mark.fuzz
@given(RECORDS, COUNTS, st.sampled_from(CURVES) | NUMBERS)
@example({"holder": ""}, {"fence": LATEST}, "")
@example({"superseded": "uid-1", "holderJob": "9" * 5000}, {}, "")
@pytest.mark.promise("any record leads to a run or to an end that workers and logs accept")
def test_any_record_leads_to_a_run_or_to_an_end_that_workers_and_logs_accept(
    record: dict[str, str], counts: dict[str, str], curve: str
) -> None:
    """Somebody may edit it by hand, and whoever may edit ConfigMaps may write what they like."""
    world = started({**record, **counts, "progress": curve})
    world.settle(until=StartLauncher)
    # The workers' clocks may be an hour behind.
    latest = (WALL + world.now - 3600) * 1000 + 2 * record_lock.MAX_AHEAD_MILLISECONDS
    assert all(write.fence <= latest for write in world.of(WriteRecord))
    assert world.of(StartLauncher) or world.exit
    assert all(len(effect.message) < 2000 for effect in world.of(CreateJobEvent))


def test_ended_run_with_a_read_only_record_is_not_repeated() -> None:
    world = started({**ENDED, "state": "Finished"})
    world.answers.clear()
    world.put(RecordFailed(RecordPurpose.TAKE, 403, "forbidden", is_temporary=False))
    assert world.end() == (0, "")
    assert not world.of(StartLauncher)
