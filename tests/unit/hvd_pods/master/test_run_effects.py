"""Effects on workers, which are watched and run programs; and work queues, which make calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.cluster import kube
from hvd_pods.cluster.job_events import JobEvents
from hvd_pods.master.cluster_effects import ClusterEffects
from hvd_pods.master.code_effects import CodeEffects
from hvd_pods.master.effect_registry import methods_of
from hvd_pods.master.launcher_effects import LauncherEffects
from hvd_pods.master.record_io import RecordClient
from hvd_pods.master.run_effects import EffectRunner
from hvd_pods.master.work_queues import WorkQueues
from hvd_pods.master.worker_effects import WorkerEffects
from hvd_pods.rules.effects import (
    Deliver,
    DetachLauncher,
    Effect,
    EndLeftovers,
    FreezeAddresses,
    Prepare,
    StartLauncher,
    StopWatching,
    WatchWorkers,
    WorkerEffect,
)
from hvd_pods.rules.events import (
    Delivered,
    InternalError,
    LauncherEnded,
    Prepared,
    RankMissing,
    WorkerAnswers,
    WorkerGone,
    WorkerProblem,
)
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.run import Pod, Run
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents
from tests.unit.hvd_pods.support.call_limits import ONCE
from tests.unit.hvd_pods.support.master_pod import MasterPod
from tests.unit.hvd_pods.support.workers import Workers


@pytest.fixture
def watch(pod: MasterPod, taken: RecordedEvents) -> Iterator[Callable[[Run], EffectRunner]]:
    """Watches the workers of a run, of which two answer."""
    started: list[EffectRunner] = []

    def begin(run: Run) -> EffectRunner:
        api = kube.Api(ONCE) if run.has_api_access else None
        assignment = Assignment(run, "own", "hvd-master-1", "uid-1")
        started.append(EffectRunner(assignment, api, JobEvents(None), taken))
        started[-1].carry_out(WatchWorkers(2))
        taken.wait_for(WorkerAnswers, 2)
        return started[-1]

    yield begin
    for effects in started:
        effects.carry_out(StopWatching())


Watch = Callable[[Run], EffectRunner]


def test_addresses_of_the_training_stay_when_they_are_withdrawn(
    workers: Workers, watch: Watch, taken: RecordedEvents
) -> None:
    """A pod that terminates has none any more, and its ranks may still save."""
    watch(workers.run(lost_after_seconds=15)).carry_out(FreezeAddresses())
    workers.stop(0)
    taken.wait(lambda: any(event.silent for event in taken.of(WorkerProblem)))
    assert not taken.of(WorkerGone)


@pytest.mark.parametrize("effect", [FreezeAddresses(), StopWatching()], ids=["frozen", "stopped"])
def test_workers_that_cannot_be_lost_are_asked_no_longer_than_needed(
    workers: Workers, watch: Watch, taken: RecordedEvents, effect: Effect
) -> None:
    before = {*threading.enumerate()}

    def probers() -> list[str]:
        started = {*threading.enumerate()} - before
        return [thread.name for thread in started if thread.name == "probe-workers"]

    effects = watch(workers.run())
    assert probers()
    effects.carry_out(effect)
    wait_until(lambda: not probers(), TIMEOUT, "the prober ends")
    number = len(taken.events)
    workers.stop(0)
    assert len(taken.events) == number


def test_leftovers_are_ended_while_the_workers_are_watched(
    pod: MasterPod,
    watch: Watch,
    taken: RecordedEvents,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # It notes the worker and the program.
    note = 'echo "$1 ${2##*hvd_pods/}" >>"$OUT/asked"'
    pod.workers.install(f'{note}; case "$1" in *worker-1*) echo "no route" >&2; exit 255 ;; esac')
    first_two = [f"hvd-worker-{number}" for number in range(2)]
    effects = watch(pod.workers.run(2, maximum=3))
    addresses = {f"hvd-worker-{number}": pod.workers.address(number) for number in range(3)}
    effects.carry_out(EndLeftovers(2, addresses, first_two))
    output = [""]

    def is_logged() -> bool:
        output[0] += capsys.readouterr().out
        return "on hvd-worker-1: no route" in output[0]

    wait_until(is_logged, TIMEOUT, "the failure is logged")
    assert output[0].count("hvd-worker-1") == 1
    expected = [f"{name}.hvd shared/files.py" for name in addresses]

    def asked() -> list[str]:
        return sorted((pod.generated.parent / "asked").read_text().splitlines())

    assert asked() == expected[:2]
    # Between two attempts, nothing is asked for.
    effects.carry_out(StopWatching())
    effects.carry_out(EndLeftovers(2, addresses, first_two))
    effects.carry_out(WatchWorkers(3))
    taken.wait_for(WorkerAnswers, 2, attempt=3)
    pod.workers.start(2)
    effects.carry_out(EndLeftovers(3, addresses, ["hvd-worker-2"]))
    wait_until(lambda: expected[2] in asked(), TIMEOUT, "the next attempt asks")
    assert asked() == expected


@pytest.mark.parametrize("saves", [True, False], ids=["of another run", "of this run"])
def test_workers_save_what_another_run_has_left_before_they_get_code(
    pod: MasterPod, watch: Watch, taken: RecordedEvents, saves: bool
) -> None:
    """Also those that get no ranks: their memory may have the newest state."""
    pod.workers.install('echo "$1 ${2##*hvd_pods/}" >>"$OUT/asked"')
    addresses = {f"hvd-worker-{number}": pod.workers.address(number) for number in range(2)}
    pods = {"hvd-worker-0": Pod(addresses["hvd-worker-0"])}
    watch(pod.workers.run(1, maximum=2)).carry_out(Deliver(2, addresses, pods, saves))
    taken.wait_for(Delivered)
    asked = pod.generated.parent / "asked"
    lines = asked.read_text().splitlines() if asked.exists() else []
    assert sorted(lines) == [f"{name}.hvd worker/save_states.py" for name in addresses if saves]


def test_launcher_is_told_to_leave_its_ranks(
    pod: MasterPod, watch: Watch, taken: RecordedEvents
) -> None:
    """master/direct.py detaches from them on SIGUSR1."""
    pod.install('trap "exit 9" USR1; touch "$OUT/started"; while :; do sleep 0.05; done')
    effects = watch(pod.workers.run(2))
    effects.carry_out(Prepare(2, fence=1, scales_workers=False))
    taken.wait_for(Prepared)
    addresses = {f"hvd-worker-{number}": pod.workers.address(number) for number in range(2)}
    effects.carry_out(StartLauncher(2, [*addresses], addresses, 0.0))
    wait_until((pod.generated.parent / "started").exists, TIMEOUT, "the launcher runs")
    effects.carry_out(DetachLauncher())
    taken.wait_for(LauncherEnded)
    assert [event.exit_code for event in taken.of(LauncherEnded)] == [9]


def test_each_effect_is_carried_out_by_one_method() -> None:
    kinds = (
        EffectRunner,
        ClusterEffects,
        CodeEffects,
        LauncherEffects,
        RecordClient,
        WorkerEffects,
    )
    carried = [effect for kind in kinds for effect in methods_of(kind.__new__(kind))]
    known = {*Effect.__subclasses__(), *WorkerEffect.__subclasses__()} - {WorkerEffect}
    assert sorted(kind.__name__ for kind in carried) == sorted(kind.__name__ for kind in known)


def test_calls_of_a_work_queue_keep_their_order_and_others_do_not_wait(
    taken: RecordedEvents,
) -> None:
    """A call that fails without need is a defect, and one without news tells nothing."""
    queues = WorkQueues(taken)
    may_end = threading.Event()

    def wait_for_end() -> None:
        may_end.wait(TIMEOUT)

    queues.add("a", wait_for_end)
    queues.add("a", lambda: RankMissing(1, 1 // 0, "", 0.0))
    queues.add("a", lambda: RankMissing(1, 2, "later", 0.0))
    queues.add("b", lambda: RankMissing(1, 2, "other", 0.0))
    taken.wait_for(RankMissing)
    may_end.set()
    taken.wait_for(RankMissing, what="later")
    other, defect, later = taken.events
    assert (other, later) == (RankMissing(1, 2, "other", 0.0), RankMissing(1, 2, "later", 0.0))
    assert isinstance(defect, InternalError)
    assert "ZeroDivisionError" in defect.traceback
