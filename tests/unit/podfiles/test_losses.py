"""Hosts that go away while they have ranks: noticed, named, and gone around. Real sockets."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hvd_pods.common.errors import LostHostError, RunError
from hvd_pods.common.run import Host
from hvd_pods.master import attempts, hosts, kube, liveness, lost_hosts, main, probing
from hvd_pods.master.user_code import UserCode
from hvd_pods.worker import sshd
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import SLICES, Workers, ssh_banner
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_on_thread_exceptions,
    names,
)

pytestmark = fail_on_thread_exceptions
LOST_AFTER: dict[str, Any] = {"lostAfterSeconds": 0.2}
# Notes that it runs, and waits to be ended.
TRAIN = 'cp "$4" "$OUT/hosts-$HVD_ATTEMPT"; [ "$HVD_ATTEMPT" = 2 ] && exit; exec sleep 60'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "SUSPECT_EVERY", 0.02)
    monkeypatch.setattr("launch.SIGNAL_CHECK_EVERY", 0.02)


def refused(workers: Workers) -> str:
    return f"port {workers.port} does not answer: Connection refused"


@pytest.mark.slow
def test_hosts_are_followed_until_one_is_lost(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    workers.start(0, 1)
    current = rendezvous(workers.run(2, **LOST_AFTER))
    losing = background(current.wait_for_loss, current.wait())
    workers.drop(1)
    assert losing.result(TIMEOUT) == {current.run.hosts[1]: refused(workers)}


@pytest.mark.slow
def test_the_loss_of_a_spare_ends_nothing(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    workers.start(0, 1)
    current = rendezvous(workers.run(1, maximum=2, **LOST_AFTER))
    used = current.wait()
    losing = background(current.wait_for_loss, used)
    wait_for(lambda: len(current.answering) == 2)
    (spare,) = current.answering.keys() - used.keys()
    workers.drop(current.run.hosts.index(spare))
    wait_for(lambda: current.answering.keys() == used.keys())
    assert not losing.done()
    current.close()
    assert losing.result(TIMEOUT) == {}


def test_a_host_that_answers_again_in_time_is_not_lost(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    """As when sshd ends the idle connection."""
    workers.start(0, 1)
    current = rendezvous(workers.run(2, lostAfterSeconds=60))
    used = current.wait()
    losing = background(current.wait_for_loss, used)
    host = current.run.hosts[1]
    workers.drop(1)
    wait_for(lambda: current.reasons.get(host) == refused(workers))
    assert current.broken(used) == {host: refused(workers)}
    workers.listen(1, ssh_banner("r1"))
    wait_for(lambda: host not in current.reasons)
    assert current.broken(used) == {}
    assert not losing.done()


@pytest.mark.slow
def test_a_master_that_hears_nobody_does_not_take_its_hosts_for_lost_so_soon(
    workers: Workers, rendezvous: StartRendezvous, background: Background,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It may be the master's own network; the ranks do not need it."""
    monkeypatch.setattr(liveness, "ALL_LOST_AFTER", 1e6)
    workers.start(0, 1)
    current = rendezvous(workers.run(2, **LOST_AFTER))
    losing = background(current.wait_for_loss, current.wait())
    workers.drop(0)
    workers.drop(1)
    wait_for(lambda: current._prober._is_alone)
    assert not losing.done()
    assert "no host responds: this pod may have lost the network" in capsys.readouterr().out
    workers.listen(0, ssh_banner("r1"))
    assert names(losing.result(TIMEOUT)) == ["hvd-worker-1"]


@pytest.mark.slow
def test_all_hosts_are_lost_in_the_end(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    workers.start(0)
    current = rendezvous(workers.run(1, **LOST_AFTER))
    losing = background(current.wait_for_loss, current.wait())
    workers.drop(0)
    assert names(losing.result(TIMEOUT)) == ["hvd-worker-0"]


@pytest.mark.slow
def test_a_pod_that_is_to_end_is_not_lost_before_it_has(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    """Its ranks have the grace period to write a checkpoint."""
    workers.start(0, 1)
    current = rendezvous(workers.run(2, **LOST_AFTER))
    losing = background(current.wait_for_loss, current.wait())
    workers.api.remove(SLICES, "hvd-worker-1")
    current._wake()
    workers.api.wait(lambda: True)
    assert not losing.done()
    workers.drop(1)
    assert names(losing.result(TIMEOUT)) == ["hvd-worker-1"]


def test_hosts_are_never_lost_where_that_is_switched_off(
    workers: Workers, rendezvous: StartRendezvous, host_threads: list[threading.Thread]
) -> None:
    workers.start(0)
    current = rendezvous(workers.run(1, lostAfterSeconds=0))
    current.wait()
    (prober,) = [thread for thread in host_threads if thread.name == "probe-hosts"]
    prober.join(TIMEOUT)
    assert not prober.is_alive(), "nothing is watched"


@pytest.mark.slow
def test_an_attempt_whose_host_is_lost_ends_and_a_spare_takes_its_place(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pod is Running, as that of a node without power."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 60.0)
    pod.workers.create_pod(1, phase="Running")
    pod.install(TRAIN)
    # The spare comes when the others have been chosen.
    losing = threading.Thread(target=lose_while_training, args=(pod, 1, 2))
    losing.start()
    assert pod.run(maximum=3, **LOST_AFTER) == 0
    losing.join()
    used = [(pod.generated.parent / f"hosts-{n}").read_text().split()[::2] for n in (1, 2)]
    assert used == [
        ["hvd-worker-0.hvd", "hvd-worker-1.hvd"],
        ["hvd-worker-0.hvd", "hvd-worker-2.hvd"],
    ]
    told = f"hvd-worker-1: phase Running; {refused(pod.workers)}"
    assert f"lost {told}: ending this attempt" in read_log(capsys)
    (event,) = [item for item in pod.api.items("core/events") if item["reason"] == "HostLost"]
    assert (event["type"], event["message"]) == ("Warning", f"lost {told}")
    assert pod.failures() == [f"lost hvd-worker-1: {refused(pod.workers)}"]


@pytest.mark.slow
def test_a_launcher_that_ends_by_itself_is_not_to_blame_for_a_host_that_is_gone(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks' errors are a consequence; the master notices the host a moment later."""
    pod.put_job(spec={"backoffLimit": 0})
    script = "echo 'Traceback (most recent call last):'; echo 'HorovodInternalError: reset'"
    wait = 'touch "$OUT/hosts-1"; until [ -e "$OUT/lost" ]; do sleep 0.01; done'
    pod.install(f"{wait}; {{ {script}; }} >&2; exit 5")
    started: list[hosts.HostRendezvous] = []

    def start(*arguments: Any) -> hosts.HostRendezvous:
        started.append(hosts.HostRendezvous(*arguments))
        return started[-1]

    monkeypatch.setattr(main, "HostRendezvous", start)

    def lose() -> None:
        lose_while_training(pod, 1)
        wait_for(lambda: list(started[0].reasons.values()) == [refused(pod.workers)])
        (pod.generated.parent / "lost").touch()

    losing = threading.Thread(target=lose)
    losing.start()
    assert pod.run(lostAfterSeconds=60) == 5
    losing.join()
    text = f"lost hvd-worker-1: {refused(pod.workers)}; a rank: HorovodInternalError: reset"
    assert pod.recorded() == ("Failed", text)


@pytest.mark.slow
def test_a_training_that_finishes_is_not_failed_by_a_loss(
    pod: MasterPod, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.END_WITHOUT_HOSTS_WITHIN", TIMEOUT)
    pod.install('trap "exit 0" TERM; touch "$OUT/hosts-1"; sleep 60 & wait')
    losing = background(lose_while_training, pod, 1)
    assert pod.run(**LOST_AFTER) == 0
    losing.result(TIMEOUT)
    assert pod.recorded() == ("Finished", "")


def lose_while_training(pod: MasterPod, ordinal: int, *spares: int) -> None:
    wait_for((pod.generated.parent / "hosts-1").exists)
    pod.workers.start(*spares)
    pod.workers.drop(ordinal)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.slow
def test_an_elastic_run_loses_the_host_from_its_list(
    pod: MasterPod,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lists: queue.Queue[list[str]] = queue.Queue()
    monkeypatch.setattr(main, "write_live_hosts", lambda found: lists.put(names(found)))
    run = pod.workers.run(2, mode="elastic", **LOST_AFTER)
    rendezvous = hosts.HostRendezvous(run, kube.Api(), lambda: False)
    first = rendezvous.wait()
    told: list[str] = []
    following = background(
        main.follow_hosts, run, None, rendezvous, UserCode(""), first, told.append
    )
    pod.workers.drop(1)
    assert lists.get(timeout=TIMEOUT) == ["hvd-worker-0"]
    pod.workers.listen(1, ssh_banner("r1"))
    assert lists.get(timeout=TIMEOUT) == ["hvd-worker-0", "hvd-worker-1"]
    rendezvous.close()
    following.result(TIMEOUT)
    assert told == [f"lost hvd-worker-1: {refused(pod.workers)}"]
    assert f"host hvd-worker-1 left: {refused(pod.workers)}" in read_log(capsys)


def test_losses_for_one_reason_are_one_entry() -> None:
    some = [Host(f"w-{n}", "", 1, "w", "r") for n in range(5)]
    lost = dict.fromkeys(some[1:], "timed out")
    assert lost_hosts.describe_loss(lost) == "lost w-[1-4] (4 hosts): timed out"
    lost[some[0]] = "refused"
    assert lost_hosts.describe_loss(lost).endswith("timed out; lost w-0: refused")


def test_a_lost_host_is_no_reason_to_pause() -> None:
    """Where the same happens again, the next attempt waits for the host."""
    retries = attempts.Retries(9)
    pauses = [retries.pause(LostHostError("lost w-0", 1), 1.0, n, None) for n in (1, 2, 3)]
    assert pauses == [0.0, 0.0, 0.0]
    assert retries.pause(RunError("x"), 1.0, 4, None) == 0.0
    assert retries.pause(RunError("y"), 1.0, 5, None) > 0.0


def test_sshd_lets_the_masters_connection_wait_without_a_login() -> None:
    assert "\nLoginGraceTime 0\n" in sshd.format_config(2222, "r1", "python3", False)


def test_launch_ends_as_failed_when_one_of_the_lost_hosts_can_no_longer_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its problem has the exit code of a run that another attempt may help."""
    saving, gone = (Host(f"w-{n}", "", 1, "w", "r") for n in range(2))
    lost = iter([{saving: "silent"}, {saving: "silent", gone: "silent"}])
    rendezvous = SimpleNamespace(wait_for_loss=lambda _: next(lost), explain=lambda _: "w-1")
    ended: list[RunError] = []
    launcher = SimpleNamespace(may_save=lambda host: host is saving, abort=ended.append)
    monkeypatch.setattr(lost_hosts, "LOOK_AGAIN_AFTER", 0.0)
    told: list[str] = []
    lost_hosts.end_when_lost(cast("Any", rendezvous), [], cast("Any", launcher), told.append)
    assert [(str(problem), problem.exit_code) for problem in ended] == [
        ("lost w-[0-1] (2 hosts): silent", 1)
    ]
    assert told == ["lost w-1"]
    assert next(lost, None) is None
