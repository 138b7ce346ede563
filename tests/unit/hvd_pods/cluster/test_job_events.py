"""Events about the Job at each stage of the run."""

from __future__ import annotations

import re
import socket
import threading

import pytest

from hvd_pods.cluster import kube
from hvd_pods.cluster.job_events import JobEvents
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.fakes.server import Handler
from tests.unit.hvd_pods.support.call_limits import ONCE


@pytest.fixture
def events(api_server: FakeApi) -> JobEvents:
    return JobEvents(kube.Api(ONCE), close_timeout_seconds=faults.TIMEOUT)


def reasons(api_server: FakeApi) -> list[str]:
    return [event["reason"] for event in api_server.items("core/events")]


def test_an_event_is_created_about_the_job(api_server: FakeApi, events: JobEvents) -> None:
    """No character of its message controls a terminal or cannot be encoded."""
    events.put("WorkersReady", "2 workers \x1b[31m\ud800", False)
    events.put("Training", "", False)
    events.close()
    event, second = api_server.items("core/events")
    about = {"apiVersion": "batch/v1", "kind": "Job", "name": "hvd-master-1"}
    expected = {
        "involvedObject": {**about, "namespace": "team", "uid": "uid-1"},
        "reason": "WorkersReady",
        "action": "WorkersReady",
        "type": "Normal",
        "count": 1,
        "message": r"2 workers \x1b[31m\ud800",
        "source": {"component": "horovod-master"},
        "reportingComponent": "horovod-master",
        "reportingInstance": socket.gethostname(),
        "firstTimestamp": f"{event['eventTime'][:19]}Z",
        "lastTimestamp": f"{event['eventTime'][:19]}Z",
    }
    assert expected.items() <= event.items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["eventTime"])
    # Events of one second keep their order by name.
    assert event["metadata"]["name"] < second["metadata"]["name"]


def test_silent_api_server_delays_no_training_and_no_end(
    api_server: FakeApi,
) -> None:
    events = JobEvents(kube.Api(ONCE), close_timeout_seconds=0.01)
    answer = threading.Event()

    def wait_and_reset(handler: Handler) -> None:
        assert answer.wait(faults.TIMEOUT)
        faults.reset(handler)

    api_server.fail("POST", "core/events", wait_and_reset)
    events.put("Training", "begins", False)
    events.put("Finished", "done", False)
    events.close()
    assert reasons(api_server) == []
    answer.set()
    # The rest is sent as soon as the API server answers.
    api_server.wait(lambda: reasons(api_server) == ["Finished"])
