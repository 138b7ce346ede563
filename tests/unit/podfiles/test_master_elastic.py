"""The master of an elastic run."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from hvd_pods.common.errors import RunError
from hvd_pods.common.run import Host, Pod
from hvd_pods.master import hosts, launch, main
from hvd_pods.master.user_code import UserCode
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.rendezvous import Background, StartRendezvous, end_wait_at
from tests.waiting import wait_until


def test_an_elastic_runs_list_of_hosts_follows_those_that_come_and_go(
    pod: MasterPod,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = pod.workers.run(1, maximum=2, mode="elastic")
    pod.workers.stop(1)
    write, lists = launch.write_live_hosts, queue.Queue[str]()
    live_hosts = pod.generated / "hosts"

    def write_and_announce(current: list[Host]) -> None:
        write(current)
        lists.put(live_hosts.read_text())

    monkeypatch.setattr(main, "write_live_hosts", write_and_announce)
    (pod.generated / "bin").mkdir()
    current = rendezvous(run)
    first = current.wait()
    losses: list[str] = []
    following = background(
        main.follow_hosts, run, None, current, UserCode(""), first, losses.append
    )
    pod.workers.start(1)
    assert lists.get(timeout=TIMEOUT) == "hvd-worker-0.hvd:2\nhvd-worker-1.hvd:2\n"
    config = (pod.generated / "ssh_config").read_text()
    assert "Host hvd-worker-1.hvd hvd-worker-1\n  HostName 127.0.1.2\n" in config
    pod.workers.stop(0)
    assert lists.get(timeout=TIMEOUT) == "hvd-worker-1.hvd:2\n"
    current.close()
    assert following.result(TIMEOUT) is None
    lines = read_log(capsys)
    assert "host hvd-worker-1 joined, at 127.0.1.2" in lines
    assert "host hvd-worker-0 left" in lines
    assert len(lines) == 2


def test_a_host_that_joins_an_elastic_run_before_it_is_followed_is_in_the_list(
    pod: MasterPod,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come while the code is copied to the others."""
    run = pod.workers.run(1, maximum=2, mode="elastic")
    (pod.generated / "bin").mkdir()
    current = rendezvous(run)
    current.wait()
    wait_until(lambda: len(current.addresses()) == 2, TIMEOUT, "both hosts answer")
    both = current.addresses()
    lists = queue.Queue[list[Host]]()
    monkeypatch.setattr(main, "write_live_hosts", lists.put)
    first = dict(list(both.items())[:1])
    background(main.follow_hosts, run, None, current, UserCode(""), first, lambda text: None)
    assert lists.get(timeout=TIMEOUT) == list(both)


class Refused(UserCode):
    """Code that its host does not take, as often as said."""

    def __init__(self, times: int) -> None:
        super().__init__("v1")
        self.times = times

    def deliver(self, pods: Mapping[Host, Pod]) -> None:
        self.times -= 1
        if self.times >= 0:
            raise RunError("cannot install requirements.txt on hvd-worker-0: no index answers")
        self._delivered.update(pods)


@pytest.mark.slow
def test_an_elastic_runs_host_that_cannot_have_its_packages_is_tried_less_and_less_often(
    pod: MasterPod,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = pod.workers.run(1, mode="elastic")
    (pod.generated / "bin").mkdir()
    for name, seconds in (("AFTER", 0.01), ("WITHIN", 0.03)):
        monkeypatch.setattr(main, f"DELIVER_AGAIN_{name}", seconds)
    current = rendezvous(run)
    first = current.wait()
    lists = queue.Queue[list[str]]()
    monkeypatch.setattr(
        main, "write_live_hosts", lambda now: lists.put([host.name for host in now])
    )
    pod.workers.stop(0)
    assert background(current.wait_for_change, first).result(TIMEOUT) == {}
    waited: list[float | None] = []
    wait_for_change = current.wait_for_change

    def wait(known: dict[Host, str], seconds: float | None = None) -> dict[Host, str] | None:
        waited.append(seconds)
        return wait_for_change(known, seconds)

    monkeypatch.setattr(current, "wait_for_change", wait)
    following = background(main.follow_hosts, run, None, current, Refused(4), {}, lambda text: None)
    pod.workers.start(0)
    used = [lists.get(timeout=TIMEOUT) for _ in range(5)]
    assert used == [[], [], [], [], ["hvd-worker-0"]]
    current.close()
    assert following.result(TIMEOUT) is None
    lines = read_log(capsys)
    assert len([line for line in lines if line.startswith("host hvd-worker-0 joined")]) == 1
    waits = [line.partition("; trying again in ")[2] for line in lines if "no index" in line]
    assert waits == [
        f"{pause} s, or when hosts join or leave" for pause in (0.01, 0.02, 0.03, 0.03)
    ]
    # For a host, then for nothing: whether the attempt has ended. At last, for the end.
    pauses = ((None, 0.0, pause) for pause in (0.01, 0.02, 0.03, 0.03))
    assert waited == [*itertools.chain(*pauses), None, 0.0, None]


def test_the_end_of_an_attempt_leaves_the_list_of_hosts_to_the_next_one(
    pod: MasterPod,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes while the code is copied to a host that has joined, which may take a minute."""
    run = pod.workers.run(1, maximum=2, mode="elastic")
    pod.workers.stop(1)
    (pod.generated / "bin").mkdir()
    current = rendezvous(run)
    first = current.wait()
    lists: list[Any] = []
    monkeypatch.setattr(main, "write_live_hosts", lists.append)

    class Slow(UserCode):
        def deliver(self, pods: Mapping[Host, Pod]) -> None:
            current.close()

    following = background(
        main.follow_hosts, run, None, current, Slow(""), first, lambda text: None
    )
    pod.workers.start(1)
    assert following.result(TIMEOUT) is None
    assert lists == []


@pytest.mark.slow
def test_an_elastic_run_starts_with_its_list_of_hosts_and_follows_it_to_its_end(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers: list[threading.Thread] = []

    def follow(*arguments: Any) -> None:
        followers.append(threading.current_thread())
        follow_hosts(*arguments)

    follow_hosts = main.follow_hosts
    monkeypatch.setattr(main, "follow_hosts", follow)
    pod.install('"$OUT/generated/bin/hosts" >"$OUT/listed"')
    assert pod.run(number=1, maximum=2, mode="elastic") == 0
    assert "hvd-worker-" in (pod.generated.parent / "listed").read_text()
    (follower,) = followers
    assert follower.daemon, "it does not keep the process running"
    follower.join(TIMEOUT)
    assert not follower.is_alive()


@pytest.mark.slow
def test_only_an_elastic_run_has_a_list_of_hosts(pod: MasterPod) -> None:
    pod.install("exit 0")
    assert pod.run() == 0
    assert not (pod.generated / "hosts").exists()


FEWEST: dict[str, Any] = {"number": 2, "mode": "elastic", "minRanks": 2}


@pytest.mark.slow
def test_a_master_that_is_started_again_goes_on_with_the_ranks_that_are_left(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one of a Job waits for all hosts; a host may be lost for good after that."""
    monkeypatch.setattr(hosts, "RESUME_WITHIN", 0.05)
    pod.put_job(spec={"backoffLimit": 0})
    pod.install('printf "%s\\n" "$@" >"$OUT/arguments"; exit 1')
    assert pod.run(**FEWEST) == 1
    assert arguments(pod)[:2] == ["-np", "4"]
    pod.workers.stop(1)
    for _ in range(2):
        assert pod.run(**FEWEST) == 1
        assert arguments(pod)[:2] == ["-np", "2"], "also a third one"


@pytest.mark.slow
def test_the_record_says_whether_an_elastic_runs_ranks_were_started(pod: MasterPod) -> None:
    """Another master of the Job may then go on with those that are left."""
    pod.install("exit 0")
    assert pod.run(number=1, maximum=2, mode="elastic") == 0
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    assert item["data"].get("trained") == "uid-1"


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "number"), [("elastic", 2), ("horovodrun", 1)])
def test_hosts_that_join_have_ranks_in_elastic_runs_only(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, mode: str, number: int
) -> None:
    """Elsewhere they are spares. The ranks are asked to save, and for their progress, there."""
    found: list[int] = []

    def run(launcher: launch.Launcher, *_: object) -> int:
        with pytest.MonkeyPatch.context() as patch:
            both = "addresses", lambda rendezvous: dict.fromkeys(rendezvous.run.hosts, "")
            patch.setattr(hosts.HostRendezvous, *both)
            found.append(len(launcher.hosts()))
        return 0

    monkeypatch.setattr(launch.Launcher, "run", run)
    pod.install("exit 0")
    assert pod.run(number=1, maximum=2, mode=mode) == 0
    assert found == [number]


@pytest.mark.slow
def test_spares_that_respond_are_counted_apart(pod: MasterPod) -> None:
    pod.install("exit 0")
    assert pod.run(number=1, maximum=2) == 0
    messages = [event["message"] for event in pod.api.items("core/events")]
    # The spare may respond before or after that.
    expected = {f"1 hosts respond, and {idle} of 1 spares" for idle in (0, 1)}
    assert expected & set(messages), messages


def test_the_first_master_of_another_job_waits_for_all_hosts(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "RESUME_WITHIN", 0.0)
    pod.put_job(spec={"backoffLimit": 0})
    data = {"trained": "the UID of an earlier Job"}
    pod.api.put("core/configmaps", {"metadata": {"name": "hvd-run"}, "data": data})
    pod.workers.stop(1)
    pod.install("exit 0")
    end_wait_at(monkeypatch, 1)
    assert pod.run(**FEWEST) == 1
    assert "1 of 2 hosts did not answer" in pod.termination_log.read_text()


def arguments(pod: MasterPod) -> list[str]:
    path = pod.generated.parent / "arguments"
    text = path.read_text()
    path.unlink()
    return text.splitlines()
