"""Effects on hosts: they are watched and asked over SSH; and the lanes in which calls are made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from hvd_pods.cluster import kube
from hvd_pods.cluster.job_events import EventRecorder
from hvd_pods.common.run import Run
from hvd_pods.master import probing, progress
from hvd_pods.master.effects import Effects, Lanes
from hvd_pods.rules import messages as m
from hvd_pods.rules.state import Facts
from tests.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.fake_worker import Workers
from tests.unit.hvd_pods.master_pod import MasterPod, read_log
from tests.unit.hvd_pods.rules.told import Told
from tests.waiting import wait_until


@pytest.fixture
def watch(pod: MasterPod, told: Told) -> Iterator[Callable[[Run], Effects]]:
    """Watches the hosts of a run, of which two answer."""
    started: list[Effects] = []

    def begin(run: Run) -> Effects:
        api = kube.Api() if run.api else None
        facts = Facts(run, "own", "hvd-master-1", "uid-1")
        started.append(Effects(facts, api, EventRecorder(None), told))
        started[-1].carry_out(m.WatchHosts(2))
        told.wait_for(m.HostAnswers, 2)
        return started[-1]

    yield begin
    for effects in started:
        effects.carry_out(m.StopWatching())


Watch = Callable[[Run], Effects]


def test_addresses_of_the_training_stay_when_they_are_withdrawn(
    workers: Workers, watch: Watch, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that terminates has none any more, and its ranks may still save."""
    monkeypatch.setattr(probing, "SUSPECT_EVERY", 0.02)
    watch(workers.run(lostAfterSeconds=15)).carry_out(m.FreezeHosts())
    workers.stop(0)
    told.wait(lambda: any(event.silent for event in told.of(m.HostProblem)))
    assert not told.of(m.HostGone)


@pytest.mark.parametrize("effect", [m.FreezeHosts(), m.StopWatching()], ids=["frozen", "stopped"])
def test_hosts_that_cannot_be_lost_are_asked_no_longer_than_needed(
    workers: Workers, watch: Watch, told: Told, effect: m.Effect
) -> None:
    before = {*threading.enumerate()}
    watch(workers.run()).carry_out(effect)
    for thread in {*threading.enumerate()} - before:
        if thread.name == "probe-hosts":
            thread.join(TIMEOUT)
            assert not thread.is_alive()
    number = len(told.events)
    workers.stop(0)
    assert len(told.events) == number


def install(pod: MasterPod, script: str) -> None:
    """Let a script stand for ssh; it notes the host and the last words of each command."""
    (pod.generated / "bin").mkdir()
    program = pod.generated / "bin" / "ssh"
    note = 'echo "$1 ${2##*hvd_pods/}" >>"$OUT/asked"'
    program.write_text(f"#!/bin/sh\n{note}\n{script}\n")
    program.chmod(0o755)


def asked(pod: MasterPod) -> list[str]:
    return sorted((pod.generated.parent / "asked").read_text().splitlines())


REFUSE_SECOND = 'case "$1" in *worker-1*) echo "no route" >&2; exit 255 ;; esac'


def test_leftovers_are_ended_while_the_hosts_are_watched(
    pod: MasterPod, watch: Watch, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    install(pod, REFUSE_SECOND)
    first_two = [f"hvd-worker-{n}" for n in range(2)]
    effects = watch(pod.workers.run(2, maximum=3))
    addresses = {f"hvd-worker-{n}": pod.workers.address(n) for n in range(3)}
    effects.carry_out(m.EndLeftovers(2, first_two, addresses))
    output = [""]

    def is_logged() -> bool:
        output[0] += capsys.readouterr().out
        return "on hvd-worker-1: no route" in output[0]

    wait_until(is_logged, TIMEOUT, "the failure is logged")
    assert output[0].count("cannot end what earlier attempts may have left on ") == 1
    expected = [f"{name}.hvd common/fast_start.py" for name in addresses]
    assert asked(pod) == expected[:2]
    # Between two attempts, nothing is asked for.
    effects.carry_out(m.StopWatching())
    effects.carry_out(m.EndLeftovers(2, first_two, addresses))
    effects.carry_out(m.WatchHosts(3))
    told.wait_for(m.HostAnswers, 2, attempt=3)
    effects.carry_out(m.EndLeftovers(3, ["hvd-worker-2"], addresses))
    wait_until(lambda: expected[2] in asked(pod), TIMEOUT, "the next attempt asks")
    assert asked(pod) == expected


def test_stacks_of_ranks_are_in_the_log_with_their_hosts(
    pod: MasterPod, watch: Watch, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    install(pod, f"{REFUSE_SECOND}; echo rank 3:; echo '  train.py line 9'")
    stalled = {"hvd-worker-0": [3, 4], "hvd-worker-1": [5]}
    watch(pod.workers.run()).carry_out(m.ShowStacks(2, stalled))
    assert told.wait_for(m.StacksShown) == m.StacksShown(2)
    assert asked(pod) == [
        "hvd-worker-0.hvd worker/stacks.py 3 4",
        "hvd-worker-1.hvd worker/stacks.py 5",
    ]
    assert read_log(capsys)[-3:] == [
        "hvd-worker-0: rank 3:",
        "hvd-worker-0:   train.py line 9",
        "hvd-worker-1: no route",
    ]


def test_progress_is_read_from_hosts_that_joined_an_elastic_run(
    pod: MasterPod, watch: Watch, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(progress, "AGAIN_AFTER", 0.01)
    install(pod, 'case "$1" in *worker-1*) echo "horovod_step 7"; exec cat ;; esac; exit 255')
    effects = watch(pod.workers.run(mode="elastic"))
    effects.carry_out(m.FollowProgress(2, ["hvd-worker-0"]))
    effects.carry_out(m.WriteLiveHosts(["hvd-worker-1"]))
    assert told.wait_for(m.ProgressReported).progress == {"step": 7}
    effects.carry_out(m.StopProgress(2, tells_last=False))
    told.wait_for(m.ProgressStopped)


def test_calls_of_a_lane_keep_their_order_and_others_do_not_wait(told: Told) -> None:
    """A call that fails without need is a defect, and one without news tells nothing."""
    lanes, may_end = Lanes(told), threading.Event()

    def wait_for_end() -> None:
        may_end.wait(TIMEOUT)

    lanes.call("a", wait_for_end)
    lanes.call("a", lambda: m.Timer(str(1 // 0)))
    lanes.call("a", lambda: m.Timer("later"))
    lanes.call("b", lambda: m.Timer("other"))
    told.wait_for(m.Timer)
    may_end.set()
    told.wait_for(m.Timer, name="later")
    other, defect, later = told.events
    assert (other, later) == (m.Timer("other"), m.Timer("later"))
    assert isinstance(defect, m.Defect)
    assert "ZeroDivisionError" in defect.traceback
