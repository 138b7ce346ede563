"""An API server that takes connections and does not answer: nothing waits for it without need."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hvd_pods.master import addresses, attempts, kube, lease, main, record, statefulsets
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.fakes.server import Handler
from tests.unit.podfiles.fake_worker import SLICES
from tests.unit.podfiles.follower import RUN, Follower, Names
from tests.unit.podfiles.master_pod import JOB, MasterPod
from tests.unit.podfiles.threads import join_threads
from tests.waiting import wait_until

FAIL_ONCE = 'echo x >>"$OUT/attempts"; [ "$HVD_ATTEMPT" = 2 ]'


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_next_attempt_begins_and_is_recorded_later(
    pod: MasterPod, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server answers when the second attempt has begun."""
    monkeypatch.setattr(main, "AGAIN_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(record, "RUNNING_WITHIN", 60.0)
    monkeypatch.setattr(lease, "RENEW_EVERY", 0.05)
    for host in pod.workers.run().hosts:
        names[host.address] = [pod.workers.address(int(host.name[-1]))]
    tried = pod.generated.parent / "attempts"

    def has_begun() -> bool:
        return tried.read_text() == "x\nx\n"

    def hang(handler: Handler) -> None:
        if not has_begun():
            pod.api.fail(str(handler.command), "", hang)
            wait_until(has_begun, 5, "the second attempt begins")
        faults.reset(handler)

    def hang_from_now_on(handler: Handler) -> None:
        for method in ("GET", "PATCH", "POST"):
            pod.api.fail(method, "", hang)
        hang(handler)

    pod.install(FAIL_ONCE)
    # What the master asks for at its start, and after the first attempt.
    pod.show_job()
    pod.api.fail("GET", f"batch/jobs/{JOB}", hang_from_now_on)
    assert pod.run() == 0
    assert pod.recorded() == ("Finished", "")
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    assert (item["data"]["attempts"], item["data"]["failures"]) == ("2", "1")


@pytest.mark.slow
def test_number_of_retries_is_known_although_no_answer_comes_between_attempts(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start, the master waits longer for one."""
    monkeypatch.setattr(main, "AGAIN_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.0)

    fit_to_run = statefulsets.fit_to_run

    def begin_in_silence(*arguments: Any) -> None:
        pod.api.fail("GET", f"batch/jobs/{JOB}", faults.silence, times=2)
        fit_to_run(*arguments)

    monkeypatch.setattr(main, "fit_to_run", begin_in_silence)
    pod.put_job(spec={"backoffLimit": 1})
    pod.install('echo x >>"$OUT/attempts"; [ "$HVD_ATTEMPT" = 4 ]')
    assert pod.run() == 1
    assert (pod.generated.parent / "attempts").read_text() == "x\nx\n"
    assert pod.recorded()[0] == "Failed"


def list_nothing(handler: Handler) -> None:
    handler.send_json(200, {"metadata": {"resourceVersion": "1"}, "items": []})


def test_a_follower_that_is_closed_while_it_lists_watches_nothing(
    api_server: FakeApi, followers: list[threading.Thread], follower: Follower
) -> None:
    def close_first(handler: Handler) -> None:
        follower.source.close()
        list_nothing(handler)

    api_server.fail("GET", SLICES, close_first)
    follower.start(addresses.SliceAddresses(kube.Api(), RUN, follower.on_change))
    join_threads(followers)


def test_a_follower_that_is_closed_does_not_wait_for_the_answer_to_its_watch(
    api_server: FakeApi, followers: list[threading.Thread], follower: Follower
) -> None:
    asked, released = threading.Event(), threading.Event()

    def hang(handler: Handler) -> None:
        asked.set()
        released.wait(60)
        faults.reset(handler)

    def then_hang(handler: Handler) -> None:
        api_server.fail("GET", SLICES, hang)
        list_nothing(handler)

    api_server.fail("GET", SLICES, then_hang)
    follower.start(addresses.SliceAddresses(kube.Api(), RUN, follower.on_change))
    assert asked.wait(faults.TIMEOUT)
    follower.source.close()
    join_threads(followers)
    released.set()
