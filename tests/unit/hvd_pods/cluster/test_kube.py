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
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.support.call_limits import ONCE, PATIENT

POD: dict[str, Any] = {"metadata": {"name": "a", "uid": "u"}, "spec": {}}
MINUTE = 60.0
# When the clock of the tests begins.
BEGAN = 1000.0
HOUR = 60 * MINUTE


@pytest.fixture
def api(api_server: FakeApi) -> kube.Api:
    api_server.put("core/pods", POD)
    return kube.Api(ONCE)


def put_pods(api_server: FakeApi, names: str) -> None:
    for name in names:
        api_server.put("core/pods", {"metadata": {"name": name}})


class Clock:
    """Time passes when the process sleeps, and only then."""

    def __init__(self) -> None:
        self.now = BEGAN

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for calls, whose pauses are the longest of the random ones."""
    made = Clock()
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


@pytest.fixture
def away(api_server: FakeApi, clock: Clock) -> kube.Api:
    """The calls to an API server that is away for an hour; one was given up."""
    api = kube.Api(clock=clock)
    fail_until(api_server, clock, clock.now + HOUR, faults.status(503))
    assert count_requests(api, api_server) > 1
    return api


@pytest.mark.parametrize("api_server", ["127.0.0.1", "::1"], indirect=True)
def test_an_object_of_the_own_namespace_is_read(api: kube.Api, api_server: FakeApi) -> None:
    assert api.namespace == "team"
    assert api.get("core/pods/a") == POD
    (request,) = api_server.requests
    sent = (request.method, request.path, request.query, request.body)
    assert sent == ("GET", "core/pods/a", {}, None)
    assert request.headers["Accept"] == "application/json"


def test_null_says_that_a_field_is_not_there(api: kube.Api, api_server: FakeApi) -> None:
    api_server.put("core/pods", {**POD, "status": None})
    assert api.get("core/pods/a") == POD


def test_each_call_is_sent_with_the_current_token(api: kube.Api, api_server: FakeApi) -> None:
    """The kubelet replaces it before it expires."""
    api.get("core/pods/a")
    (kube.ACCOUNT / "token").write_text("renewed\n")
    api.get("core/pods/a")
    sent = [request.headers["Authorization"] for request in api_server.requests]
    assert sent == ["Bearer secret", "Bearer renewed"]


def test_a_list_has_what_the_query_selects_and_the_version_to_watch_from(
    api: kube.Api, api_server: FakeApi
) -> None:
    items, version = api.list_all("core/pods", {"fieldSelector": "metadata.name=a"})
    assert items == [POD]
    assert version.isdecimal()
    (request,) = api_server.requests
    assert request.query == {"fieldSelector": "metadata.name=a", "limit": "500"}


def test_a_long_list_is_read_in_parts(api: kube.Api, api_server: FakeApi) -> None:
    put_pods(api_server, "bcde")
    items, _ = kube.Api(ONCE._replace(page=2)).list_all("core/pods", {"labelSelector": ""})
    assert [item["metadata"]["name"] for item in items] == ["a", "b", "c", "d", "e"]
    assert [request.query.get("continue") for request in api_server.requests] == [None, "2", "4"]


# Each with the exception that it raises, and the seconds for which it is waited for.
BROKEN: dict[str, tuple[faults.Failure, type[Exception], float]] = {
    "reset": (faults.reset, OSError, TIMEOUT),
    "cut": (faults.cut_answer, http.client.IncompleteRead, TIMEOUT),
    "json": (faults.text(200, '{"metadata": {"na'), json.JSONDecodeError, TIMEOUT),
    "nested": (faults.text(200, "[" * 100_000), RecursionError, TIMEOUT),
    "list": (faults.text(200, "[]"), ValueError, TIMEOUT),
    "slow": (faults.silence, TimeoutError, 0.05),
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
def test_an_incomplete_answer_is_an_api_error(api_server: FakeApi, what: str, call: str) -> None:
    failure, cause, seconds = BROKEN[what]
    api = kube.Api(ONCE._replace(silence_timeout_seconds=seconds, watch_seconds=seconds))
    api_server.fail("GET", "core/pods", failure)
    with pytest.raises(kube.ApiError, match=r"complete response .* core/pods\S* \(\w+: ") as raised:
        CALLS[call](api)
    assert raised.value.status == kube.NO_HTTP_STATUS
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
    assert kube.Api(ONCE).get("core/pods/a") == POD
    (kube.ACCOUNT / "ca.crt").write_bytes(Authority("another").certificate)
    with pytest.raises(kube.ApiError, match="certificate verify failed") as raised:
        kube.Api(ONCE).get("core/pods/a")
    assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)
    assert not raised.value.is_temporary
    assert len(api_server.requests) == 1


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


@pytest.mark.parametrize("failure", TEMPORARY.values(), ids=TEMPORARY)
@pytest.mark.parametrize("method", ["GET", "PATCH", "POST", "DELETE"])
def test_calls_are_repeated_until_the_api_server_is_back(
    api: kube.Api,
    api_server: FakeApi,
    failure: faults.Failure,
    method: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api_server.fail(method, "core/pods", failure, times=3)
    CALLS[method](kube.Api(PATIENT))
    assert len(api_server.requests) == 4
    assert capsys.readouterr().out.count("trying again") == 1, "an outage is logged once"


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
def test_what_will_not_pass_is_not_repeated(api_server: FakeApi, code: int) -> None:
    """An API server that refuses a call is there."""
    api = kube.Api(PATIENT)
    api.is_away = True
    api_server.fail("GET", "core/pods", faults.status(code))
    assert count_requests(api, api_server) == 1
    assert not api.is_away


@pytest.mark.slow
def test_absent_api_server_is_given_up_after_a_quarter_of_an_hour(
    away: kube.Api, clock: Clock
) -> None:
    assert 14 * MINUTE < clock.now - BEGAN <= 15 * MINUTE
    assert away.is_away


@pytest.mark.slow
def test_calls_after_one_that_was_given_up_are_not_repeated(
    away: kube.Api, api_server: FakeApi
) -> None:
    assert [count_requests(away, api_server) for _ in range(2)] == [1, 1]


@pytest.mark.slow
def test_calls_are_patient_again_a_minute_after_one_was_given_up(
    away: kube.Api, api_server: FakeApi, clock: Clock
) -> None:
    """Such as those at the end of the training."""
    clock.now += MINUTE + 1
    assert count_requests(away, api_server) > 1


@pytest.mark.slow
def test_an_api_server_that_answers_again_is_not_away(away: kube.Api, clock: Clock) -> None:
    clock.now += HOUR
    assert away.get("core/pods/a") == POD
    assert not away.is_away


def test_a_server_is_not_asked_before_it_wants_to_be(api_server: FakeApi, clock: Clock) -> None:
    """Also where the node has just started."""
    began = clock.now = 1.0
    fail_until(api_server, clock, began + 1, faults.status(429, Retry_After="42"))
    assert kube.Api(clock=clock).get("core/pods/a") == POD
    assert clock.now - began == 42
    assert len(api_server.requests) == 2


@pytest.mark.parametrize("stopped_after", [0.0, 100.0])
def test_a_pod_that_is_asked_to_end_waits_no_longer_than_the_kubelet(
    api_server: FakeApi, clock: Clock, stopped_after: float
) -> None:
    api = kube.Api(clock=clock)
    began = clock.now
    api.is_stopped = lambda: clock.now >= began + stopped_after
    fail_until(api_server, clock, began + 60 * MINUTE, faults.status(503))
    count_requests(api, api_server)
    count_requests(api, api_server)
    assert stopped_after + 5 < clock.now - began <= stopped_after + 11


def test_no_call_is_repeated_for_longer_than_the_limit(api_server: FakeApi, clock: Clock) -> None:
    fail_until(api_server, clock, clock.now + HOUR, faults.status(503))
    assert count_requests(kube.Api(ONCE, clock), api_server, MINUTE) == 1
