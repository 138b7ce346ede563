"""Ranks that were asked to leave end together: the master's side."""

from __future__ import annotations

import itertools
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common import fast_start, fence, notices
from hvd_pods.common.run import Host
from hvd_pods.master import attempts, lost_hosts, main, notice_server
from hvd_pods.master.launch import Launcher
from hvd_pods.master.terminating_ranks import TerminatingRanks
from hvd_pods.rank import rank_end, ranks
from hvd_pods.worker import draining
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import ssh_banner
from tests.unit.podfiles.master_pod import MasterPod
from tests.unit.podfiles.rendezvous import Background
from tests.waiting import wait_until


class Rank:
    """A rank that waits for the end of its connection."""

    def __init__(self) -> None:
        self.own, self.masters = socket.socketpair()

    @property
    def waits(self) -> bool:
        return not select.select([self.own], [], [], 0)[0]


@pytest.fixture
def failed() -> Iterator[Rank]:
    rank = Rank()
    yield rank
    rank.own.close()
    rank.masters.close()


def test_rank_that_failed_waits_for_all_that_were_asked(failed: Rank) -> None:
    leavers = TerminatingRanks()
    for host, rank in (("w-0", 0), ("w-0", 1), ("w-1", 2)):
        leavers.ask(host, rank)
    leavers.end("w-0", 1, failed.masters)
    leavers.end("w-0", 0, None)
    assert failed.waits
    leavers.end("w-1", 2, None)
    assert not failed.waits


def test_no_rank_ends_before_all_are_asked(failed: Rank) -> None:
    """The master asks one worker sooner than the other."""
    leavers = TerminatingRanks()
    with leavers.asking():
        leavers.ask("w-0", 0)
        leavers.end("w-0", 0, failed.masters)
        assert failed.waits
        leavers.ask("w-1", 1)
    assert failed.waits
    leavers.end("w-1", 1, None)
    assert not failed.waits


def test_only_rank_that_was_asked_does_not_wait(failed: Rank) -> None:
    leavers = TerminatingRanks()
    leavers.ask("w-0", 0)
    leavers.end("w-0", 0, failed.masters)
    assert not failed.waits


def test_next_attempt_knows_nothing_of_the_one_before(failed: Rank) -> None:
    leavers = TerminatingRanks()
    leavers.ask("w-0", 0)
    leavers.ask("w-1", 1)
    leavers.end("w-0", 0, failed.masters)
    leavers.reset()
    assert not failed.waits
    other = Rank()
    leavers.end("w-0", 0, other.masters)
    assert not other.waits
    other.own.close()


@pytest.fixture
def folder(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path))
    return str(tmp_path)


def test_worker_sees_whether_a_rank_waits_to_report_its_end(folder: str) -> None:
    assert not ranks.is_any_waiting()
    marker = ranks.mark_waiting()
    assert ranks.is_any_waiting()
    ranks.mark_not_waiting(marker)
    assert not ranks.is_any_waiting()
    with open(f"{folder}/{2**22 + 1}.waits", "w"):  # noqa: PTH123
        assert not ranks.is_any_waiting(), "the process was killed"


def test_rank_that_was_not_asked_ends_at_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "send", lambda *_, **__: pytest.fail("it told the master"))
    rank_end.report_end(3, 1)
    monkeypatch.setenv("HVD_NOTICES", "127.0.0.1,1,secret")
    monkeypatch.setattr(fast_start, "GENERATED", folder)
    ranks.register(3, os.getpid())
    rank_end.report_end(3, 1)


REPORT = """
import os, signal, sys
folder = sys.argv[2]
sys.path.insert(0, sys.argv[1])
import basics, rank_end, ranks
ranks.FOLDER = basics.GENERATED = folder
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: None)
ranks.register(3, os.getpid())
open(ranks._asked(ranks.find(3)), "x")
rank_end.report_end(3, 1)
"""


def test_launcher_ends_a_rank_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a fork passes signals on; then there is no script any more."""
    monkeypatch.setenv("HVD_EPOCH", "7")
    monkeypatch.setenv("HVD_NOTICES", "")
    told: queue.Queue[dict[str, Any]] = queue.Queue()
    with notice_server.Server("127.0.0.1", told.put) as server:
        command = [sys.executable, "-I", "-c", REPORT, str(Path(ranks.__file__).parent)]
        with subprocess.Popen([*command, str(tmp_path)]) as rank:
            notice = told.get(timeout=60)
            assert (notice["kind"], notice["rank"]) == (notices.ENDED, 3)
            rank.send_signal(signal.SIGUSR1)
            rank.send_signal(signal.SIGTERM)
            assert rank.wait(60) == -signal.SIGTERM
        server.shutdown()


def test_worker_stays_while_one_of_its_ranks_waits_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its launcher's daemon, which has the rank, would end with it."""
    looks, clock = iter([True, True, False]), itertools.count()
    monkeypatch.setattr(draining, "REPORT_WITHIN", 1.5)
    monkeypatch.setattr(draining, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(ranks, "running", lambda: iter(()))
    monkeypatch.setattr(ranks, "is_any_waiting", lambda: next(looks))
    monkeypatch.setattr(fence, "older_processes", lambda epoch: iter([7]))

    class Sshd:
        returncode = 0

        def kill(self) -> None:
            pass

    waited: list[int] = []
    draining.leave(Sshd(), 30.0, lambda: waited.append(1))  # type: ignore[arg-type]
    assert len(waited) == 2


def test_master_that_does_not_answer_takes_no_more_of_the_grace_period_for_each_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripts = [ranks.Script(rank, 1, "0", "", "7") for rank in range(8)]
    looks = iter([scripts, []])
    told: list[ranks.Script] = []
    asked: list[ranks.Script] = []

    def notify(script: ranks.Script, **content: object) -> bool:
        told.append(script)
        return False

    monkeypatch.setattr(ranks, "running", lambda: iter(next(looks)))
    monkeypatch.setattr(ranks, "is_any_waiting", lambda: False)
    monkeypatch.setattr(ranks, "notify", notify)
    monkeypatch.setattr(ranks, "ask_to_end", asked.append)
    monkeypatch.setattr(fence, "older_processes", lambda epoch: iter(()))
    sshd = SimpleNamespace(returncode=0, kill=lambda: None)
    draining.leave(sshd, 30.0, lambda: None)  # type: ignore[arg-type]
    assert told == scripts[:1]
    assert asked == scripts


# Tells the master what a worker tells it.
LEAVES = """
import json, os, socket
host, port, secret = os.environ["HVD_NOTICES"].split(",")
notice = {"kind": "leaving", "host": "hvd-worker-1", "rank": 2, "seconds": 60}
with socket.create_connection((host, int(port))) as connection:
    line = {"secret": secret, "epoch": os.environ["HVD_EPOCH"], **notice}
    connection.sendall(json.dumps(line).encode() + b"\\n")
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
"""


@pytest.fixture
def leaves(pod: MasterPod, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command by which a launcher plays a worker that was asked to leave."""
    monkeypatch.setenv("HVD_POD_IP", "127.0.0.1")
    monkeypatch.setenv("HVD_NOTICES", "")
    program = pod.generated.parent / "leaves.py"
    program.write_text(LEAVES)
    return f"{sys.executable} -I -S {program}"


@pytest.mark.slow
@pytest.mark.parametrize("code", [143, 1, 0])
def test_attempt_that_a_worker_has_left_counts_as_no_failure(
    pod: MasterPod,
    leaves: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
) -> None:
    pauses: list[float] = []
    wait = attempts.wait

    def note_and_wait(pause: float, is_stopped: Callable[[], bool]) -> bool:
        pauses.append(pause)
        return wait(pause, is_stopped)

    monkeypatch.setattr(main, "wait", note_and_wait)
    pod.put_job(spec={"backoffLimit": 0})
    pod.install(f'[ "$HVD_ATTEMPT" -ge 4 ] || {{ {leaves}; exit {code}; }}')
    assert pod.run() == 0
    output = capsys.readouterr()
    failures = pod.failures()
    why = "hvd-worker-1 was terminated: deleted, evicted, or its node drained or shut down"
    assert failures == ([why] * 3 if code else [])
    assert output.err.count(f"[hvd] error: {why}\n") == len(failures)
    assert output.out.count("does not count as a failure") == len(failures)
    assert pauses == [0.0] * len(failures)
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    assert (item["data"]["state"], item["data"]["failures"]) == ("Finished", "0")
    warned = "hvd-worker-1 was terminated, but the ranks ended with 0" in output.out
    assert warned == (code == 0)


@pytest.mark.slow
def test_worker_that_was_asked_to_leave_is_not_lost_while_its_ranks_save(
    pod: MasterPod, leaves: str, monkeypatch: pytest.MonkeyPatch, background: Background
) -> None:
    """Its sshd listens no more, so that no other attempt begins there."""
    monkeypatch.setattr(lost_hosts, "LOOK_AGAIN_AFTER", 0.01)
    monkeypatch.setattr("probing.SUSPECT_EVERY", 0.02)
    folder = pod.generated.parent
    saves = f"touch {folder}/saving; until [ -e {folder}/saved ]; do sleep 0.01; done; exit 143"
    pod.install(f'[ "$HVD_ATTEMPT" -ge 2 ] || {{ {leaves}; {saves}; }}')
    looks = threading.Semaphore(0)
    may_save = Launcher.may_save

    def look(self: Launcher, host: Host) -> bool:
        looks.release()
        return may_save(self, host)

    monkeypatch.setattr(Launcher, "may_save", look)

    def lose() -> None:
        wait_until((folder / "saving").exists, TIMEOUT, "the rank saves")
        pod.workers.drop(1)
        for _ in range(3):
            assert looks.acquire(timeout=TIMEOUT), "the host was not missed, or taken for lost"
        pod.workers.listen(1, ssh_banner("r1"))
        (folder / "saved").touch()

    losing = background(lose)
    assert pod.run(lostAfterSeconds=0.2) == 0
    losing.result(TIMEOUT)
    (failed,) = pod.failures()
    assert failed.startswith("hvd-worker-1 was terminated: ")
