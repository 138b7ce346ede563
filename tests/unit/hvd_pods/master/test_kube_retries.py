"""Calls that are repeated while a failure may pass, and for how long."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from hvd_pods.master import kube
from tests.fakes import faults
from tests.fakes.api import FakeApi

POD: dict[str, Any] = {"metadata": {"name": "a", "uid": "u"}, "spec": {}}
MINUTE = 60.0
TEMPORARY: dict[str, faults.Failure] = {
    "500": faults.status(500),
    "503": faults.status(503),
    "502 of a proxy": faults.text(502, "<html>"),
    "504 of a proxy": faults.text(504, "<html>"),
    "408": faults.status(408),
    "429": faults.status(429),
    "a time that is no number": faults.status(429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
    "401": faults.status(401),
    "reset": faults.reset,
    "cut": faults.cut_answer,
    "cut JSON": faults.text(200, '{"cut'),
    "nothing": faults.text(200, "{}"),
}
CALLS: dict[str, Callable[[kube.Api], object]] = {
    "GET": lambda api: api.get("core/pods/a"),
    "DELETE": lambda api: api.delete("core/pods/a", "u"),
    "PATCH": lambda api: api.merge_patch("core/pods/a", {"spec": {"b": 3}}),
    "POST": lambda api: api.create("core/pods", {"metadata": {"name": "b"}}),
}


class Clock:
    """Stands for the module `time`: time passes when the process sleeps, and only then."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def api(api_server: FakeApi, patient: None) -> kube.Api:
    api_server.put("core/pods", POD)
    return kube.Api()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for calls, whose pauses are the longest of the random ones."""
    made = Clock()
    monkeypatch.setattr(kube, "time", made)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    return made


def fail_until(api_server: FakeApi, clock: Clock, end: float, *failures: faults.Failure) -> None:
    """Let every read of pods fail until `end`, in turns."""
    failing = itertools.cycle(failures)

    def fail(handler: Any) -> None:
        api_server.fail("GET", "core/pods", fail)
        if clock.now < end:
            next(failing)(handler)
        else:
            handler.send_json(200, POD)

    api_server.fail("GET", "core/pods", fail)


def count_requests(api: kube.Api, api_server: FakeApi, retry_seconds: float | None = None) -> int:
    """How often a read that fails is tried until it is given up."""
    asked = len(api_server.requests)
    with pytest.raises(kube.ApiError):
        api.get("core/pods/a", retry_seconds)
    return len(api_server.requests) - asked


@pytest.mark.parametrize("failure", TEMPORARY.values(), ids=TEMPORARY)
def test_a_read_is_repeated_until_the_api_server_is_back(
    api: kube.Api,
    api_server: FakeApi,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api_server.fail("GET", "core/pods", failure, times=3)
    assert api.get("core/pods/a") == POD
    assert len(api_server.requests) == 4
    assert capsys.readouterr().out.count("trying again") == 1, "an outage is logged once"


@pytest.mark.parametrize("method", CALLS)
def test_other_calls_are_repeated_as_well(api: kube.Api, api_server: FakeApi, method: str) -> None:
    api_server.fail(method, "core/pods", faults.cut_answer, times=3)
    CALLS[method](api)
    assert len(api_server.requests) == 4


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
def test_what_will_not_pass_is_not_repeated(api: kube.Api, api_server: FakeApi, code: int) -> None:
    """An API server that refuses a call is there."""
    api.is_away = True
    api_server.fail("GET", "core/pods", faults.status(code))
    assert count_requests(api, api_server) == 1
    assert not api.is_away


def test_pauses_grow_at_random_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    assert list(itertools.islice(kube.pauses(0.2, 1.0), 5)) == [0.2, 0.4, 0.8, 1.0, 1.0]
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    assert list(itertools.islice(kube.pauses(0.2, 1.0), 3)) == [0.1, 0.2, 0.4]


@pytest.mark.slow
@pytest.mark.usefixtures("default_retry_seconds")
def test_an_api_server_that_stays_away_is_given_up_once_and_not_for_each_call(
    api_server: FakeApi, clock: Clock
) -> None:
    api, began = kube.Api(), clock.now
    fail_until(api_server, clock, began + 60 * MINUTE, faults.status(503))
    assert count_requests(api, api_server) > 1
    assert api.is_away
    assert 14 * MINUTE < clock.now - began <= 15 * MINUTE
    assert [count_requests(api, api_server) for _ in range(2)] == [1, 1]
    # A minute later, calls are patient again, such as those at the end of the training.
    clock.now += MINUTE + 1
    assert count_requests(api, api_server) > 1
    clock.now = began + 60 * MINUTE
    assert api.get("core/pods/a") == POD
    assert not api.is_away


@pytest.mark.usefixtures("default_retry_seconds")
def test_a_server_is_not_asked_before_it_wants_to_be(api_server: FakeApi, clock: Clock) -> None:
    """Also where the node has just started."""
    began = clock.now = 1.0
    fail_until(api_server, clock, began + 1, faults.status(429, Retry_After="42"))
    assert kube.Api().get("core/pods/a") == POD
    assert clock.now - began == 42
    assert len(api_server.requests) == 2


@pytest.mark.usefixtures("default_retry_seconds")
@pytest.mark.parametrize("stopped_after", [0.0, 100.0])
def test_a_pod_that_is_asked_to_end_waits_no_longer_than_the_kubelet(
    api_server: FakeApi, clock: Clock, stopped_after: float
) -> None:
    api, began = kube.Api(), clock.now
    api.is_stopped = lambda: clock.now >= began + stopped_after
    fail_until(api_server, clock, began + 60 * MINUTE, faults.status(503))
    for _ in range(2):
        count_requests(api, api_server)
    assert stopped_after + 5 < clock.now - began <= stopped_after + 11
