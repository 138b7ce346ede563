"""Which of several masters holds the record and controls the workers."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.errors import InterruptedRunError, RunError
from hvd_pods.master import lease
from hvd_pods.master.lease import SupersededError
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.masters import PATH, Masters
from tests.unit.podfiles.rendezvous import Background


def test_a_master_writes_who_it_is_and_renews(masters: Masters) -> None:
    first = masters.take(masters.make("master-a"))
    data = masters.data()
    assert (data["holder"], data["holderJob"], data["holderUid"]) == (
        "master-a", "job-1", "uid-of-job-1",
    )  # fmt: skip
    assert data["epoch"] == str(first.epoch)
    masters.api.wait(lambda: masters.data()["renewed"] > data["renewed"])
    assert masters.waited == []


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
