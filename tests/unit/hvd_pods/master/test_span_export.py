"""The spans of a run reach a collector of OpenTelemetry, which is a real HTTP server here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import span_export
from hvd_pods.master.span_export import HEADERS, SERVICE_NAME, SpanExport
from hvd_pods.rules.decide import decide
from hvd_pods.rules.effects import FollowProgress
from hvd_pods.rules.state import RunState
from hvd_pods.shared import contract
from tests.support.fakes import faults
from tests.support.fakes.faults import Failure
from tests.support.fakes.server import Api, Certificates, Handler
from tests.support.world import World
from tests.unit.hvd_pods.master_pod import MasterPod
from tests.unit.hvd_pods.rules.trainings import end_with, training

# Seconds that a test waits for what must not come.
SHORT = 0.05


class Collector(Api):
    """Takes spans, unless a failure stands in `failures`: each is for one request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.failures: list[Failure] = []

    def answer(self, handler: Handler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): text for name, text in handler.headers.items()}
        self.requests.append((handler.command, handler.path, headers))
        if self.failures:
            self.failures.pop(0)(handler)
            return
        for sent in json.loads(body)["resourceSpans"]:
            self.resources.append(values(sent["resource"]["attributes"]))
            self.spans += [span for scope in sent["scopeSpans"] for span in scope["spans"]]
        handler.send_json(200, {})

    def span(self, name: str) -> dict[str, Any]:
        """The only span of this name."""
        (found,) = [span for span in self.spans if span["name"] == name]
        return found

    def names(self) -> list[str]:
        return [span["name"] for span in self.spans]


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    with collector.serve():
        yield collector


@pytest.fixture
def world() -> World:
    """A run whose first attempt has failed."""
    world = training()
    end_with(world, 1)
    world.end_launcher()
    world.settle(until=FollowProgress)
    return world


def start(world: World, url: str, **environment: str) -> SpanExport:
    described = {"endpoint": url, "release": "hvd", "namespace": "team", "framework": "torch"}
    environment = {contract.TRACING: json.dumps(described), **environment}
    export = span_export.start(world.state.assignment, environment)
    assert export
    return export


def tell(export: SpanExport, world: World) -> None:
    """Let the exporter see what the loop has seen."""
    state = RunState(world.state.assignment)
    for moment, event, _ in world.history:
        state, _ = decide(state, event, moment)
        export.put(moment, state)


@pytest.fixture
def informed(collector: Collector, world: World) -> Collector:
    """A collector below a path, which has got the spans of the world."""
    export = start(world, f"{collector.url}/tenant/")
    tell(export, world)
    export.close()
    return collector


def test_spans_are_sent_as_json_below_the_path_of_the_endpoint(informed: Collector) -> None:
    method, path, headers = informed.requests[0]
    assert (method, path) == ("POST", "/tenant/v1/traces")
    assert headers["content-type"] == "application/json"


def test_a_span_names_its_parent_and_its_times_as_opentelemetry_has_them(
    informed: Collector,
) -> None:
    attempt = informed.span("attempt")
    assert (len(attempt["traceId"]), len(attempt["spanId"])) == (32, 16)
    assert informed.span("train")["parentSpanId"] == attempt["spanId"]
    began, ended = (int(attempt[key]) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    assert 10**18 < began < ended


def test_only_a_span_that_has_failed_has_the_status_of_an_error(informed: Collector) -> None:
    attempt = informed.span("attempt")
    assert attempt["status"]["code"] == 2
    assert attempt["status"]["message"]
    assert (
        values(attempt["attributes"]).items()
        >= {
            "hvdchart.attempt": "1",
            "error.type": "LaunchError",
        }.items()
    )
    assert informed.span("train")["status"] == {}


def test_spans_are_of_the_release_its_job_and_the_masters_pod(informed: Collector) -> None:
    assert informed.resources[0] == {
        "service.name": "hvd",
        "k8s.namespace.name": "team",
        "k8s.job.name": "job-1",
        "k8s.job.uid": "uid-1",
        "k8s.pod.name": "own",
        "hvdchart.release": "hvd",
        "hvdchart.framework": "torch",
    }


def test_variables_of_opentelemetry_name_the_service_and_have_the_headers(
    collector: Collector, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = "x-key=s3cr%3Dt, content-type=text/plain,novalue,bad=s3cr%0A,two=%C3%A9"
    export = start(world, collector.url, **{HEADERS: headers, SERVICE_NAME: "unet"})
    tell(export, world)
    export.close()
    sent = collector.requests[0][2]
    assert sent["x-key"] == "s3cr=t"
    assert sent["content-type"] == "application/json"
    assert not {"bad", "two", "novalue"} & sent.keys()
    assert collector.resources[0]["service.name"] == "unet"
    output = capsys.readouterr().out
    assert output.count(HEADERS) == 3
    assert "s3cr" not in output


def redirect(handler: Handler) -> None:
    handler.send_text(302, "", {"Location": "/elsewhere"})


def echo(handler: Handler) -> None:
    """Send the key back, where an answer has its version."""
    handler.close_connection = True
    handler.wfile.write(f"{handler.headers['x-key']}\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("failure", "is_sent_again"),
    [
        (faults.reset, True),
        (faults.status(503), True),
        (faults.status(429), True),
        (faults.status(400), False),
        (faults.status(401), False),
        (redirect, False),
        (echo, True),
    ],
)
def test_spans_that_are_not_taken_are_sent_with_the_next_ones_if_that_may_help(
    collector: Collector,
    world: World,
    capsys: pytest.CaptureFixture[str],
    failure: Failure,
    is_sent_again: bool,
) -> None:
    """The log says once that it went wrong."""
    collector.failures = [failure, failure]
    export = start(world, collector.url, **{HEADERS: "x-key=s3cret"})
    tell(export, world)
    export.close()
    assert ("gather workers" in collector.names()) == is_sent_again
    assert {path for _, path, _ in collector.requests} == {"/v1/traces"}
    output = capsys.readouterr().out
    assert output.count(collector.url) == 1
    assert "s3cret" not in output


def drip(handler: Handler) -> None:
    """Send a byte again and again, so that no time limit between two bytes is reached."""
    handler.close_connection = True
    while not handler.api.closed.wait(SHORT / 5):
        handler.wfile.write(b"H")
        handler.wfile.flush()


@pytest.mark.parametrize("failure", [faults.silence, drip])
def test_a_slow_collector_does_not_keep_the_master(
    collector: Collector, world: World, failure: Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    collector.failures = [failure] * 9
    resource: dict[str, str | int] = {}
    to = span_export.Collector(collector.url, resource, {})
    export = SpanExport(world.state.assignment, to, close_within=SHORT)
    tell(export, world)
    export.close()
    assert len(collector.requests) <= 1
    assert collector.url in capsys.readouterr().out


def test_a_collector_that_never_answers_is_given_up(collector: Collector, world: World) -> None:
    collector.failures = [faults.silence]
    to = span_export.Collector(collector.url, {}, {}, answer_within=SHORT)
    export = SpanExport(world.state.assignment, to)
    tell(export, world)
    export.close()
    assert "gather workers" in collector.names()


def test_nobody_listens(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    collector = Collector()
    with collector.serve() as url:
        pass
    export = start(world, url)
    tell(export, world)
    export.close()
    assert capsys.readouterr().out.count(url) == 1


def test_only_a_collector_with_a_trusted_certificate_gets_spans(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path, "127.0.0.1")
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(certificates.authority.certificate)
    collector = Collector()
    with collector.serve(certificates.tls) as url:
        stranger = start(world, url)
        tell(stranger, world)
        stranger.close()
        assert collector.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        known = start(world, url)
        tell(known, world)
        known.close()
    assert "attempt" in collector.names()


def test_a_defect_ends_the_export_and_not_the_run(
    collector: Collector, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = start(world, collector.url)
    monkeypatch.setattr(span_export, "follow", lambda *_: 1 // 0)
    tell(export, world)
    export.close()
    assert collector.requests == []


def test_a_master_sends_the_whole_run_by_its_end(
    pod: MasterPod, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = {"endpoint": collector.url, "release": "hvd", "namespace": "t", "framework": ""}
    monkeypatch.setenv(contract.TRACING, json.dumps(described))
    pod.install("exit 0")
    assert pod.run() == 0
    assert collector.names()[-1] == "run"
    assert {"gather workers", "deliver code", "train", "attempt"} < {*collector.names()}
