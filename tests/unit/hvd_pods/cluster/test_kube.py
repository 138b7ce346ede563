"""Calls to the API: what is sent, what each failure becomes, and which calls are repeated."""

from __future__ import annotations

import http.client
import json
import random
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from devtools.localkube.pki import Authority
from hvd_pods.cluster import kube
from tests.fakes import faults
from tests.fakes.api import FakeApi

POD: dict[str, Any] = {"metadata": {"name": "a", "uid": "u"}, "spec": {}}


@pytest.fixture
def api(api_server: FakeApi) -> kube.Api:
    api_server.put("core/pods", POD)
    return kube.Api()


@pytest.mark.parametrize("api_server", ["127.0.0.1", "::1"], indirect=True)
def test_a_read_is_sent_with_the_current_token(api: kube.Api, api_server: FakeApi) -> None:
    assert api.namespace == "team"
    api_server.put("core/pods", {**POD, "status": None})
    assert api.get("core/pods/a") == POD, "null says that a field is not there"
    (kube.ACCOUNT / "token").write_text("renewed\n")
    items, version = api.list_all("core/pods", {"fieldSelector": "metadata.name=a"})
    assert (items, version.isdecimal()) == ([POD], True)
    first, second = api_server.requests
    assert (first.method, first.path, first.query, first.body) == ("GET", "core/pods/a", {}, None)
    assert first.headers["Authorization"] == "Bearer secret"
    assert first.headers["Accept"] == "application/json"
    assert second.headers["Authorization"] == "Bearer renewed"
    assert second.query == {"fieldSelector": "metadata.name=a", "limit": "500"}


def test_a_long_list_is_read_in_parts(
    api: kube.Api, api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "PAGE", 2)
    for name in "bcde":
        api_server.put("core/pods", {"metadata": {"name": name}})
    items, _ = api.list_all("core/pods", {"labelSelector": ""})
    assert [item["metadata"]["name"] for item in items] == ["a", "b", "c", "d", "e"]
    assert [request.query.get("continue") for request in api_server.requests] == [None, "2", "4"]


BROKEN: dict[str, tuple[faults.Failure, type[Exception]]] = {
    "reset": (faults.reset, OSError),
    "cut": (faults.cut_answer, http.client.IncompleteRead),
    "json": (faults.text(200, '{"metadata": {"na'), json.JSONDecodeError),
    "nested": (faults.text(200, "[" * 100_000), RecursionError),
    "list": (faults.text(200, "[]"), ValueError),
    "slow": (faults.silence, TimeoutError),
}
CALLS: dict[str, Callable[[kube.Api], object]] = {
    "GET": lambda api: api.get("core/pods/a"),
    "DELETE": lambda api: api.delete("core/pods/a"),
    "PATCH": lambda api: api.merge_patch("core/pods/a", {"spec": {}}),
    "POST": lambda api: api.create("core/pods", {"metadata": {"name": "b"}}),
    "watch": lambda api: list(api.watch("core/pods/a", {})),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("call", ["GET", "watch"])
def test_an_incomplete_answer_is_an_api_error(
    api: kube.Api, api_server: FakeApi, what: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, cause = BROKEN[what]
    if failure is faults.silence:
        monkeypatch.setattr(kube, "CALL_TIMEOUT", 0.05)
        monkeypatch.setattr(kube, "WATCH_SECONDS", 0.05)
    api_server.fail("GET", "core/pods", failure)
    with pytest.raises(kube.ApiError, match=r"complete response .* core/pods\S* \(\w+: ") as raised:
        CALLS[call](api)
    assert raised.value.status == kube.NO_ANSWER
    assert isinstance(raised.value.__cause__, (cause, json.JSONDecodeError))
    assert raised.value.is_temporary


def test_the_api_is_verified_alike_on_every_python(
    api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 asks more of certificates than clusters' have; the authority still counts."""
    usual = ssl.create_default_context

    def as_in_python_3_13(*, cafile: str) -> ssl.SSLContext:
        context = usual(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    api_server.put("core/pods", POD)
    monkeypatch.setattr(ssl, "create_default_context", as_in_python_3_13)
    assert kube.Api().get("core/pods/a") == POD
    (kube.ACCOUNT / "ca.crt").write_bytes(Authority("another").certificate)
    with pytest.raises(kube.ApiError, match="certificate verify failed") as raised:
        kube.Api().get("core/pods/a")
    assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)
    assert not raised.value.is_temporary
    assert len(api_server.requests) == 1


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


class Clock:
    """Stands for the module `time`: time passes when the process sleeps, and only then."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for calls, whose pauses are the longest of the random ones."""
    made = Clock()
    monkeypatch.setattr(kube, "time", made)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    return made


def fail_until(api_server: FakeApi, clock: Clock, end: float, failure: faults.Failure) -> None:
    """Let every read of pods fail until `end`."""

    def fail(handler: Any) -> None:
        api_server.fail("GET", "core/pods", fail)
        if clock.now < end:
            failure(handler)
        else:
            handler.send_json(200, POD)

    api_server.fail("GET", "core/pods", fail)


def count_requests(api: kube.Api, api_server: FakeApi, retry_seconds: float | None = None) -> int:
    """How often a read that fails is tried until it is given up."""
    asked = len(api_server.requests)
    with pytest.raises(kube.ApiError):
        api.get("core/pods/a", retry_seconds)
    return len(api_server.requests) - asked


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("failure", TEMPORARY.values(), ids=TEMPORARY)
def test_calls_are_repeated_until_the_api_server_is_back(
    api: kube.Api, api_server: FakeApi, failure: faults.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("GET", "PATCH", "POST", "DELETE"):
        api_server.requests.clear()
        api_server.fail(method, "core/pods", failure, times=3)
        CALLS[method](api)
        assert len(api_server.requests) == 4
        assert capsys.readouterr().out.count("trying again") == 1, "an outage is logged once"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
def test_what_will_not_pass_is_not_repeated(api: kube.Api, api_server: FakeApi, code: int) -> None:
    """An API server that refuses a call is there."""
    api.is_away = True
    api_server.fail("GET", "core/pods", faults.status(code))
    assert count_requests(api, api_server) == 1
    assert not api.is_away


@pytest.mark.slow
@pytest.mark.usefixtures("default_retry_seconds")
def test_an_api_server_that_stays_away_is_given_up_once_and_not_for_each_call(
    api_server: FakeApi, clock: Clock
) -> None:
    api = kube.Api()
    began = clock.now
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
    api = kube.Api()
    began = clock.now
    api.is_stopped = lambda: clock.now >= began + stopped_after
    fail_until(api_server, clock, began + 60 * MINUTE, faults.status(503))
    for _ in range(2):
        count_requests(api, api_server)
    assert stopped_after + 5 < clock.now - began <= stopped_after + 11
