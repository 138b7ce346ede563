"""Which workers the attempts use after the GPU of one has failed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hvd_pods.rules.effects import CreateJobEvent, Effect, FindCause, StartLauncher, WatchWorkers
from hvd_pods.rules.events import Cause, CauseFound, Event, Started, WorkerAnswers
from hvd_pods.rules.newcomers import GROWTH_INTERVAL_SECONDS
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.run import Pod, Run
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import World, one_group, pod

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def elastic(number: int, maximum: int, minimum: int) -> Run:
    return one_group(number, maximum, minimum, mode="direct", shrink_after_seconds=30)


@dataclass
class Training(World):
    """A run whose launches end for the GPU of a worker; `pods`: those that workers have by now."""

    broken: str = ""
    pods: dict[str, Pod] = field(default_factory=dict)

    def answers_to(self, effect: Effect) -> list[Event]:
        if isinstance(effect, FindCause):
            cause = Cause(f"rank 0 on {self.broken}: ", ECC, False, broken_worker=self.broken)
            return [CauseFound(effect.attempt, cause)]
        if isinstance(effect, WatchWorkers):
            names = [worker.name for worker in self.run.workers]
            pods = [(name, self.pods.get(name, pod(name))) for name in names]
            return [WorkerAnswers(effect.attempt, name, pod) for name, pod in pods]
        return super().answers_to(effect)

    def fail(self, *workers: str) -> None:
        """Let the launch end for the GPU of a worker, and the next one for that of the next."""
        for worker in workers:
            self.answer_all()
            self.broken = worker
            self.end_launcher(1)
            self.launch()

    def launch(self) -> None:
        """Let things happen until there is another launch, whose workers answer at the very end."""
        before = len(self.launched())
        while len(self.launched()) == before:
            if self.answers:
                effects = [effect for effect, _ in self.answers]
                others = [
                    index
                    for index, effect in enumerate(effects)
                    if not isinstance(effect, WatchWorkers)
                ]
                self.answer(min(others, default=0))
            else:
                assert self.fire(), "the master waits for nothing"

    def launched(self) -> list[str]:
        """The ordinals of the workers of each launch."""
        return ["".join(name[2:] for name in launch.workers) for launch in self.of(StartLauncher)]


def training(run: Run) -> Training:
    """A run whose ranks train."""
    world = Training(run)
    world.put(Started())
    world.launch()
    return world


@pytest.mark.parametrize(
    ("run", "broken", "launches"),
    [
        pytest.param(one_group(2, 3), ["w-0"], ["01", "12"], id="a spare takes over"),
        pytest.param(one_group(2, 4), ["w-1", "w-2"], ["01", "02", "03"], id="each spare does"),
        pytest.param(one_group(2), ["w-0"], ["01", "01"], id="no other worker"),
        pytest.param(one_group(2, 3), ["w-0", "w-2"], ["01", "12", "01"], id="not enough others"),
        pytest.param(one_group(2, 3), ["w-0", "w-1"], ["01", "12", "02"], id="one other"),
        pytest.param(elastic(3, 3, 2), ["w-0"], ["012", "12"], id="the minimum is enough"),
        pytest.param(elastic(3, 3, 3), ["w-0"], ["012", "012"], id="the minimum is not"),
        pytest.param(elastic(4, 4, 3), ["w-0", "w-1"], ["0123", "123", "023"], id="one of two"),
        pytest.param(elastic(3, 4, 2), ["w-0"], ["012", "123"], id="a spare before the minimum"),
    ],
)
def test_worker_with_a_broken_gpu_is_used_only_where_no_others_are_enough(
    run: Run, broken: list[str], launches: list[str]
) -> None:
    world = training(run)
    world.fail(*broken)
    assert world.launched() == launches


def test_report_of_a_broken_gpu_has_the_command_to_avoid_its_node() -> None:
    world = training(one_group(2, 3))
    world.fail("w-0")
    (message,) = [
        effect.message for effect in world.of(CreateJobEvent) if effect.event == RunEvent.GPU_FAILED
    ]
    assert "w-0" in message
    assert "kubectl cordon node of w-0" in message


def test_new_pod_of_a_worker_is_used_again() -> None:
    """Somebody has cordoned the node and deleted the pod, or has reset the GPU."""
    world = training(one_group(2, 3))
    world.fail("w-0")
    world.pods["w-0"] = pod("w-0")._replace(uid="another")
    world.fail("w-2")
    assert world.launched() == ["01", "12", "01"]


def test_ranks_are_not_ended_for_a_worker_with_a_broken_gpu() -> None:
    world = training(elastic(3, 3, 2))
    world.fail("w-0")
    world.now += 10 * GROWTH_INTERVAL_SECONDS
    world.answer_all()
    assert TimerKind.GROW not in world.state.timers


@pytest.mark.parametrize(
    ("run", "failures"),
    [(one_group(2, 3), 1), (elastic(3, 3, 2), 0), (elastic(3, 3, 3), 1)],
    ids=["spare", "minimum", "minimum of all"],
)
def test_broken_gpu_is_a_failure_only_where_a_lost_worker_is_one(run: Run, failures: int) -> None:
    world = training(run)
    world.fail("w-0")
    assert world.state.failures == failures
