"""Which of several masters holds the record and controls the workers."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kube
import lease
import pytest
from lease import Lease, SupersededError
from settings import InterruptedRunError, RunError

from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.rendezvous import Background

PATH = "core/configmaps/hvd-run"


class Masters:
    """Makes the leases of masters, each in a pod of its own."""

    def __init__(self, api: FakeApi, patch: pytest.MonkeyPatch) -> None:
        self.api, self._patch = api, patch
        self.waited: list[str] = []
        self._made: list[Lease] = []
        api.put("core/configmaps", {"metadata": {"name": "hvd-run"}})

    def make(
        self, pod: str, job: str = "job-1", on_lost: Callable[[], None] = lambda: None
    ) -> Lease:
        self._patch.setattr(socket, "gethostname", lambda: pod)
        self._patch.setenv("HVD_JOB", job)
        self._patch.setenv("HVD_JOB_UID", f"uid-of-{job}" if job else "")
        self._made.append(Lease(kube.Api(), "hvd-run", on_lost))
        return self._made[-1]

    def take(self, made: Lease, is_stopped: Callable[[], bool] = lambda: False) -> Lease:
        made.take(is_stopped, self.waited.append)
        return made

    def data(self) -> dict[str, str]:
        item: Any = self.api.find("core/configmaps", "hvd-run")
        data: dict[str, str] = item.get("data", {})
        return data

    def close(self) -> None:
        for made in self._made:
            made.release()


@pytest.fixture
def masters(api_server: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(lease, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.02)
    monkeypatch.setattr(lease, "EXPIRES_AFTER", 60.0)
    monkeypatch.setattr(lease, "TAKE_RETRY_SECONDS", 0.0)
    made = Masters(api_server, monkeypatch)
    yield made
    made.close()


def test_a_master_writes_who_it_is_and_renews(masters: Masters) -> None:
    first = masters.take(masters.make("master-a"))
    data = masters.data()
    assert (data["holder"], data["holderJob"], data["holderUid"]) == (
        "master-a", "job-1", "uid-of-job-1",
    )  # fmt: skip
    assert data["epoch"] == str(first.epoch)
    masters.api.wait(lambda: masters.data()["renewed"] > data["renewed"])
    assert masters.waited == []


def test_a_second_master_waits_until_the_first_has_released(
    masters: Masters, background: Background
) -> None:
    first = masters.take(masters.make("master-a"))
    second = masters.make("master-b", "job-2")
    waiting = background(masters.take, second)
    masters.api.wait(lambda: len(masters.waited) == 1)
    assert masters.waited == ["master-a of job-1"]
    looks = len(masters.api.asked("GET", PATH))
    masters.api.wait(lambda: len(masters.api.asked("GET", PATH)) > looks + 3)
    assert not waiting.done()
    first.release()
    waiting.result(TIMEOUT)
    assert masters.data()["holder"] == "master-b"
    assert second.epoch > first.epoch
    assert masters.waited == ["master-a of job-1"]
    assert not first.lost, "it gave the record back"


def test_a_holder_that_does_not_renew_is_replaced_and_its_job_makes_no_other_attempt(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    first = masters.make("master-a", on_lost=lost.set)
    # Alive, but cut off from the API server.
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    masters.take(first)
    monkeypatch.setattr(lease, "EXPIRES_AFTER", 0.1)
    second = masters.take(masters.make("master-b", "job-2"))
    assert second.epoch > first.epoch
    # It can reach the API server again.
    assert not first.write({"state": "Finished"})
    assert lost.is_set()
    assert first.lost == "master-b of job-2"
    assert "state" not in masters.data()
    second.release()
    with pytest.raises(SupersededError, match="job-2 has taken the workers over") as raised:
        masters.take(masters.make("master-c", "job-1"))
    assert raised.value.exit_code == 78


def test_a_holder_that_was_replaced_does_not_undo_the_end_of_the_next_one(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    monkeypatch.setattr(lease, "EXPIRES_AFTER", 0.1)
    second = masters.take(masters.make("master-b", "job-2"))
    assert second.write({"state": "Finished"})
    # Nobody holds the record now.
    second.release()
    assert not first.write({"state": "Running"})
    assert first.lost
    assert (masters.data()["state"], masters.data()["holder"]) == ("Finished", "")


def test_a_master_that_learns_of_its_replacement_while_it_waits_writes_nothing(
    masters: Masters, monkeypatch: pytest.MonkeyPatch, background: Background
) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    with first._guard:
        waiting = background(first.write, {"state": "Finished"})
        # A renewal, which holds the guard, has found another holder and read its version.
        masters.take(masters.make("master-b", "job-1"))
        assert not first.write({})
    assert waiting.result(TIMEOUT) is False
    assert masters.data()["holder"] == "master-b"
    assert "state" not in masters.data()


def test_a_holder_that_renews_is_not_replaced(masters: Masters, background: Background) -> None:
    masters.take(masters.make("master-a"))
    second = masters.make("master-b", "job-2")
    stop, now = threading.Event(), [1000.0]

    def see_renewal() -> None:
        before = masters.data()["renewed"]
        masters.api.wait(lambda: masters.data()["renewed"] > before)
        looks = len(masters.api.asked("GET", PATH))
        # The first of these has read the renewal, and the second comes after that.
        masters.api.wait(lambda: len(masters.api.asked("GET", PATH)) > looks + 1)

    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep, time_ns=time.time_ns)
        patch.setattr(lease, "time", clock)
        waiting = background(masters.take, second, stop.is_set)
        for _ in range(5):
            see_renewal()
            now[0] += 0.9 * lease.EXPIRES_AFTER
        assert not waiting.done()
        stop.set()
        with pytest.raises(InterruptedRunError, match="master-a of job-1 controls the workers"):
            waiting.result(TIMEOUT)


def test_the_next_pod_of_the_same_job_does_not_wait(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job controller starts it when the one before has ended, though it could not say so."""
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    second = masters.take(masters.make("master-b"))
    assert second.epoch > first.epoch
    assert masters.waited == []
    assert not first.write({"state": "Running"})
    assert first.lost == "master-b of job-1"


def test_a_renewal_that_is_under_way_does_not_take_back_what_is_released(
    masters: Masters,
) -> None:
    first = masters.make("master-a")
    renewing: queue.Queue[threading.Thread] = queue.Queue()

    def release() -> dict[str, str]:
        first.release()
        renewing.put(threading.current_thread())
        return {"progress": "late"}

    first.news = release
    masters.take(first)
    renewing.get(timeout=TIMEOUT).join(TIMEOUT)
    assert masters.data()["holder"] == ""


def test_of_two_masters_that_find_the_record_free_one_takes_it(masters: Masters) -> None:
    """Both read it before one of them writes."""
    first, second = masters.make("master-a"), masters.make("master-b", "job-2")
    number = itertools.count()

    def take_first(handler: Any) -> None:
        if next(number) == 0:
            masters.take(first)
        handler.send_json(*faults.status_object(409, "the object has been modified"))

    masters.api.fail("PATCH", PATH, take_first)
    with pytest.raises(RunError, match="master-a of job-1 still controls the workers"):
        second.take(lambda: False, masters.waited.append, until=1.0)
    assert masters.data()["holder"] == "master-a"


@pytest.mark.parametrize("failure", [faults.status(503), faults.reset], ids=["503", "reset"])
def test_a_holder_goes_on_while_the_api_is_away_and_renews_afterwards(
    masters: Masters, failure: faults.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    first = masters.take(masters.make("master-a"))
    before = len(masters.api.asked("PATCH", PATH))
    masters.api.fail("PATCH", PATH, failure, times=5)
    masters.api.wait(lambda: len(masters.api.asked("PATCH", PATH)) > before + 7)
    assert not first.lost
    renewed = masters.data()["renewed"]
    masters.api.wait(lambda: masters.data()["renewed"] > renewed)
    assert "cannot write the record of this run: " in capsys.readouterr().out


def test_a_record_that_cannot_be_written_yet_does_not_keep_the_training_waiting(
    masters: Masters, capsys: pytest.CaptureFixture[str]
) -> None:
    masters.api.fail("PATCH", PATH, faults.status(503), times=3)
    first = masters.take(masters.make("master-a"))
    assert first.epoch > 0
    masters.api.wait(lambda: masters.data().get("holder") == "master-a")
    assert masters.data()["epoch"] == str(first.epoch)
    assert "trying again during the training" in capsys.readouterr().out


def test_a_record_that_cannot_be_read_keeps_the_training_from_starting(masters: Masters) -> None:
    masters.api.fail("GET", PATH, faults.status(503))
    with pytest.raises(RunError, match="cannot read which master controls the workers: 503"):
        masters.take(masters.make("master-a"))


@pytest.mark.parametrize("code", [403, 404])
def test_without_a_right_to_the_record_a_later_master_has_a_later_epoch(
    masters: Masters, code: int
) -> None:
    masters.api.fail("GET", PATH, faults.status(code), times=2)
    first, second = (masters.take(masters.make(name, name)) for name in ("a", "b"))
    assert second.epoch >= first.epoch > 1_000_000_000_000
    assert masters.data() == {}


def test_each_attempt_has_an_epoch_of_its_own(masters: Masters) -> None:
    first = masters.take(masters.make("master-a"))
    before = first.epoch
    first.next_epoch()
    assert first.epoch > before
    assert first.write({"state": "Running"})
    assert masters.data()["epoch"] == str(first.epoch)


def test_no_attempt_of_a_master_that_was_replaced_comes_after_those_of_the_next_one(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not know: it cannot reach the API server. The clock of the next one is behind."""
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    second = masters.take(masters.make("master-b"))
    monkeypatch.setattr(time, "time_ns", lambda: 1 << 62)
    for _ in range(100):
        first.next_epoch()
    assert first.epoch < second.epoch


def test_news_are_written_at_once_or_by_the_next_renewal(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    first.news = lambda: {"state": "Running"}
    masters.api.fail("PATCH", PATH, faults.status(503))
    first.renew(TIMEOUT)
    assert "state" not in masters.data()
    first.renew(TIMEOUT)
    masters.api.wait(lambda: "state" in masters.data())


def test_news_are_those_of_the_moment_in_which_they_are_written(masters: Masters) -> None:
    """Not older than what another thread has written meanwhile, such as the end of the run."""
    first = masters.make("master-a")
    first.news = lambda: {"state": str(first._guard._is_owned())}  # type: ignore[attr-defined]
    masters.take(first)
    masters.api.wait(lambda: "state" in masters.data())
    assert masters.data()["state"] == "True"


def test_an_epoch_grows_though_the_clock_was_set_back() -> None:
    future = 99_999_999_999_999
    assert lease.new_epoch(future) == future + 1
    assert abs(lease.new_epoch(1) - time.time() * 1000) < 10_000


def test_tests_of_the_release_wait_for_one_another(
    masters: Masters, background: Background
) -> None:
    """Their pods have no Job, by which the next one would take over."""
    first = masters.take(masters.make("test-a", job=""))
    waiting = background(masters.take, masters.make("test-b", job=""))
    masters.api.wait(lambda: masters.waited == ["test-a of helm test"])
    assert not waiting.done()
    first.release()
    waiting.result(TIMEOUT)


def test_record_that_nobody_has_taken_is_written(masters: Masters) -> None:
    """As when a person has changed it."""
    first = masters.take(masters.make("master-a"))
    item = {"metadata": {"name": "hvd-run"}, "data": {"holder": ""}}
    masters.api.put("core/configmaps", item)
    assert first.write({"state": "Finished"})
    assert (masters.data()["state"], masters.data()["holder"]) == ("Finished", "master-a")
    assert first.lost == ""
