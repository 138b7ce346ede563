"""What the holder of the record writes, with which epoch, and an API server that is away."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from hvd_pods.common.errors import RunError
from hvd_pods.master import lease
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.masters import PATH, Masters


def test_a_renewal_that_is_under_way_does_not_take_back_what_is_released(
    masters: Masters,
) -> None:
    first = masters.make("master-a")
    renewing: queue.Queue[threading.Thread] = queue.Queue()

    def release() -> dict[str, str]:
        # The release asks for the news as well.
        if not first._released.is_set():
            first.release()
            renewing.put(threading.current_thread())
        return {"progress": "late"}

    first.news = release
    masters.take(first)
    renewing.get(timeout=TIMEOUT).join(TIMEOUT)
    assert masters.data()["holder"] == ""


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_news_are_written_when_the_master_goes_on(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An elastic run is recorded as training before its first rank can be lost."""
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    first.news = lambda: {"state": "Running"}
    first.renew(TIMEOUT)
    assert masters.data().get("state") == "Running", "the master went on before it was written"


def test_record_that_is_given_back_has_the_last_news(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the end of the run, which could not be written while the API server was away."""
    monkeypatch.setattr(lease, "RENEW_EVERY", 60.0)
    first = masters.take(masters.make("master-a"))
    first.news = lambda: {"state": "Finished"}
    masters.api.fail("PATCH", PATH, faults.status(503))
    assert not first.write(first.news(), 0.0)
    first.release()
    assert (masters.data()["state"], masters.data()["holder"]) == ("Finished", "")


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


def test_record_that_nobody_has_taken_is_written(masters: Masters) -> None:
    """As when a person has changed it."""
    first = masters.take(masters.make("master-a"))
    item = {"metadata": {"name": "hvd-run"}, "data": {"holder": ""}}
    masters.api.put("core/configmaps", item)
    assert first.write({"state": "Finished"})
    assert (masters.data()["state"], masters.data()["holder"]) == ("Finished", "master-a")
    assert first.lost == ""


def test_master_without_the_api_writes_nothing(
    masters: Masters,
) -> None:
    made = lease.Lease(None, "hvd-run", lambda: pytest.fail("no other master can be known"))
    masters.take(made)
    assert made.epoch > 0
    assert made.write({"state": "Running"}) is False
    made.release()
    assert masters.data() == {}
