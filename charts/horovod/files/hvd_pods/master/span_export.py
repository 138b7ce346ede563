"""Sends the spans of a run (master/spans.py) to a collector of OpenTelemetry, as JSON over HTTP.

The master needs so little of OpenTelemetry that no image needs its packages. A collector that is
unreachable, slow or faulty does not delay or end the run.
"""

from __future__ import annotations

import json
import os
import queue
import re
import time
import traceback
from typing import Any, Iterable, Mapping, Sequence
from urllib.error import HTTPError, URLError
from urllib.parse import unquote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from hvd_pods.cluster.spawn import spawn
from hvd_pods.master.spans import Attributes, Span, Trace, follow
from hvd_pods.pod.reporting import log
from hvd_pods.rules.events import Moment
from hvd_pods.rules.state import Assignment, RunState
from hvd_pods.shared import contract
from hvd_pods.shared.untrusted import one_line

PATH = "/v1/traces"
# Variables of OpenTelemetry, for the master: the headers may contain a key, and come from a Secret.
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
SERVICE_NAME = "OTEL_SERVICE_NAME"
# Timeouts in seconds: for the next byte from the collector, and for the collector when the master
# ends.
ANSWER_WITHIN = 5.0
CLOSE_WITHIN = 3.0
# Spans that wait for a collector that is away: the oldest ones are dropped.
MOST_UNSENT = 1000
# Seconds for which the last spans are retried, and seconds between two retries.
AGAIN_WITHIN = 1.0
AGAIN_EVERY = 0.2
# A header as RFC 9110 defines it.
HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+=[\t\x20-\x7e]*")
# The status codes of a collector that may accept the same spans later (OTLP, "Failures").
TEMPORARY = (429, 502, 503, 504)
# opentelemetry.proto.trace.v1.
INTERNAL = 1
ERROR = 2


class Collector:
    """Where spans go: `POST endpoint/v1/traces`, with these attributes of the resource."""

    def __init__(
        self,
        endpoint: str,
        resource: Attributes,
        headers: Mapping[str, str],
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        self.url = endpoint.rstrip("/") + PATH
        self._resource = resource
        own = {"Content-Type": "application/json", "User-Agent": "horovod-master"}
        self._headers = {**headers, **own}
        self._answer_within = answer_within
        self._opener = build_opener(_NoRedirects)

    def post(self, spans: Sequence[Span]) -> tuple[str, bool]:
        """Send spans; return why they were not accepted, and whether a retry may succeed.

        The reason is empty if they were accepted, and contains no output of the collector.
        """
        body = encode(spans, self._resource)
        # The schema of the chart allows HTTP and HTTPS only.
        request = Request(self.url, body, self._headers)  # noqa: S310
        try:
            self._opener.open(request, timeout=self._answer_within).close()
        except HTTPError as refused:
            refused.close()
            return f"it answers {refused.code}", refused.code in TEMPORARY
        except URLError as problem:
            return one_line(str(problem.reason)), True
        except Exception as problem:  # noqa: BLE001 - whatever a foreign server brings about
            # The message may contain the collector's response: a header, for instance.
            return type(problem).__name__, True
        return "", False


class _NoRedirects(HTTPRedirectHandler):
    """Another server would get the headers, and with them a key."""

    def redirect_request(self, *_: Any) -> None:
        return None


class SpanExport:
    """Follows the states of the loop, and sends ended spans in a thread of its own."""

    def __init__(
        self, assignment: Assignment, collector: Collector, close_within: float = CLOSE_WITHIN
    ) -> None:
        self._trace = Trace(RunState(assignment))
        self._collector = collector
        self._close_within = close_within
        self._is_open = True
        # The deadline for retries of the last spans.
        self._until = 0.0
        self._waiting: queue.SimpleQueue[tuple[Span, ...] | None] = queue.SimpleQueue()
        self._thread = spawn("send-spans", self._send)

    def put(self, moment: Moment, state: RunState) -> None:
        """Queue the spans that ended with this state."""
        if not self._is_open:
            return
        try:
            self._trace, spans = follow(self._trace, state, moment)
        except Exception:  # noqa: BLE001 - a defect here ends no training
            log(f"no further spans are exported: {traceback.format_exc()}")
            self._is_open = False
            return
        if spans:
            self._waiting.put(spans)

    def close(self) -> None:
        """Wait a short time until the spans are sent."""
        self._is_open = False
        self._until = time.monotonic() + min(self._close_within, AGAIN_WITHIN)
        self._waiting.put(None)
        self._thread.join(self._close_within)
        if self._thread.is_alive():
            log(f"{self._collector.url} does not answer in time: the last spans may be missing")

    def _send(self) -> None:
        unsent: tuple[Span, ...] = ()
        is_logged = False
        is_last = False
        while not is_last or (unsent and time.monotonic() < self._until):
            if is_last:
                # Nothing else is left to wait for.
                time.sleep(AGAIN_EVERY)
            else:
                spans, is_last = self._take()
                unsent = (*unsent, *spans)[-MOST_UNSENT:]
            problem, is_temporary = self._collector.post(unsent) if unsent else ("", False)
            if problem and not is_logged:
                log(f"cannot export spans to {self._collector.url}: {problem}")
                is_logged = True
            if not is_temporary:
                unsent = ()

    def _take(self) -> tuple[tuple[Span, ...], bool]:
        """Wait for a span; return all spans in the queue, and whether they are the last ones.

        They are sent together, because a slow collector would delay the last ones.
        """
        spans: tuple[Span, ...] = ()
        while True:
            item = self._waiting.get()
            if item is None:
                return spans, True
            spans = (*spans, *item)
            if self._waiting.empty():
                return spans, False


def start(assignment: Assignment, environment: Mapping[str, str] = os.environ) -> SpanExport | None:
    """Export the spans of a run if the chart says where to, in HVD_TRACING."""
    described = environment.get(contract.TRACING)
    if not described:
        return None
    document: dict[str, Any] = json.loads(described)
    resource: Attributes = {
        "service.name": environment.get(SERVICE_NAME) or document["release"],
        "k8s.namespace.name": document["namespace"],
        "k8s.job.name": assignment.job,
        "k8s.job.uid": assignment.uid,
        "k8s.pod.name": assignment.holder,
        "hvdchart.release": document["release"],
    }
    if document["framework"]:
        resource["hvdchart.framework"] = document["framework"]
    headers = parse_headers(environment.get(HEADERS, ""))
    return SpanExport(assignment, Collector(document["endpoint"], resource, headers))


def parse_headers(text: str) -> dict[str, str]:
    """Parse `NAME=VALUE,...` with values quoted as in a URL; ignore parts that are no headers."""
    headers: dict[str, str] = {}
    for number, part in enumerate(text.split(",") if text.strip() else (), 1):
        name, sign, value = part.strip().partition("=")
        if HEADER.fullmatch(f"{name}{sign}{unquote(value)}"):
            headers[name] = unquote(value)
        else:
            # Do not log the text: it may contain a key.
            log(f"part {number} of {HEADERS} is left out: it is not NAME=VALUE in ASCII")
    return headers


def encode(spans: Iterable[Span], resource: Attributes) -> bytes:
    """Return the OTLP request with these spans."""
    scope = {"scope": {"name": "horovod-master"}, "spans": [_encode(span) for span in spans]}
    described = {"resource": {"attributes": _list(resource)}, "scopeSpans": [scope]}
    return json.dumps({"resourceSpans": [described]}).encode()


def _encode(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace,
        "spanId": span.id,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(int(span.began * 1e9)),
        "endTimeUnixNano": str(int(span.ended * 1e9)),
        "attributes": _list(span.attributes),
        "status": {"code": ERROR, "message": span.failure} if span.failure else {},
    }


def _list(attributes: Attributes) -> list[dict[str, Any]]:
    # JSON has no 64-bit integers: OTLP writes them as texts.
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for key, value in attributes.items()
    ]
