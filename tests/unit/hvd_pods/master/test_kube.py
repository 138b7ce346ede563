"""Calls to the API: what is sent, and what becomes of each way to fail."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from devtools.localkube.pki import Authority
from hvd_pods.master import kube
from tests.fakes import faults
from tests.fakes.api import FakeApi

POD: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"node": "n"}}


@pytest.fixture
def api(api_server: FakeApi) -> kube.Api:
    api_server.put("core/pods", POD)
    return kube.Api()


def test_a_read_is_sent_with_the_current_token(api: kube.Api, api_server: FakeApi) -> None:
    assert api.namespace == "team"
    assert api.get("core/pods/a") == POD
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


def test_an_object_is_deleted_only_if_it_is_the_one_that_was_meant(
    api: kube.Api, api_server: FakeApi
) -> None:
    """A StatefulSet creates another pod of the same name."""
    api_server.put("core/pods", {"metadata": {"name": "a", "uid": "second"}})
    with pytest.raises(kube.ApiError, match=r"^409: "):
        api.delete("core/pods/a", "first")
    api.delete("core/pods/a", "second")
    assert api_server.find("core/pods", "a") is None


@pytest.mark.parametrize("code", [400, 403, 409, 429, 503])
def test_an_error_status_is_raised_with_its_message(
    api: kube.Api, api_server: FakeApi, code: int
) -> None:
    api_server.fail("GET", "core/pods", faults.status(code, "try later", Retry_After="1"))
    with pytest.raises(kube.ApiError, match=f"^{code}: try later$") as raised:
        api.get("core/pods/a")
    assert raised.value.status == code
    assert api.get("core/pods/a") == POD, "one failure does not spoil the next call"


BROKEN: list[tuple[faults.Failure, type[Exception]]] = [
    (faults.reset, OSError),
    (faults.cut_answer, http.client.IncompleteRead),
    (faults.text(200, '{"metadata": {"na'), json.JSONDecodeError),
    (faults.text(200, "<html>"), json.JSONDecodeError),
    (faults.text(200, "[]"), ValueError),
    (faults.silence, TimeoutError),
]
CALLS: list[Callable[[kube.Api], object]] = [
    lambda api: api.get("core/pods/a"),
    lambda api: api.delete("core/pods/a"),
    lambda api: api.merge_patch("core/pods/a", {}),
    lambda api: api.create("core/pods/a", {}),
    lambda api: list(api.watch("core/pods/a", {})),
]


@pytest.mark.parametrize(
    ("failure", "cause"), BROKEN, ids=["reset", "cut", "json", "html", "list", "slow"]
)
@pytest.mark.parametrize("call", CALLS, ids=["GET", "DELETE", "PATCH", "POST", "watch"])
def test_an_incomplete_answer_is_an_api_error(
    api: kube.Api,
    api_server: FakeApi,
    failure: faults.Failure,
    cause: type[Exception],
    call: Callable[[kube.Api], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if failure is faults.silence:
        monkeypatch.setattr(kube, "CALL_TIMEOUT", 0.05)
        monkeypatch.setattr(kube, "WATCH_SECONDS", 0.05)
    for method in ("GET", "DELETE", "PATCH", "POST"):
        api_server.fail(method, "core/pods", failure)
    with pytest.raises(kube.ApiError, match=r"complete response .* core/pods/a \(\w+: ") as raised:
        call(api)
    assert raised.value.status == kube.NO_ANSWER == 0
    assert isinstance(raised.value.__cause__, (cause, json.JSONDecodeError))
    assert raised.value.is_temporary


def test_a_watch_yields_events_until_the_server_ends_it(api: kube.Api, api_server: FakeApi) -> None:
    events = api.watch("core/pods", {"fieldSelector": "metadata.name=a"})
    assert next(events) == {"type": "ADDED", "object": POD}
    api_server.put("core/pods", {"metadata": {"name": "b"}})
    api_server.remove("core/pods", "a")
    assert next(events)["type"] == "DELETED"
    api_server.end_watches()
    assert list(events) == []
    query = api_server.requests[0].query
    assert query == {"watch": "1", "timeoutSeconds": "300", "fieldSelector": "metadata.name=a"}


@pytest.mark.parametrize("failure", [faults.cut_chunk, faults.cut_line])
def test_a_watch_that_is_cut_is_an_api_error_after_the_events_before(
    api: kube.Api, api_server: FakeApi, failure: faults.Failure
) -> None:
    events = api.watch("core/pods", {})
    assert next(events)["object"] == POD
    api_server.end_watches(failure)
    with pytest.raises(kube.ApiError) as raised:
        next(events)
    assert raised.value.status == kube.NO_ANSWER


@pytest.mark.parametrize("api_server", ["::1"], indirect=True)
def test_the_api_at_an_ipv6_address(api: kube.Api, api_server: FakeApi) -> None:
    assert api.get("core/pods/a") == POD
    assert api_server.requests[0].headers["Host"] == f"[::1]:{api_server.port}"


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
