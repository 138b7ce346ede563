"""Events about the Job at each stage of the run."""

from __future__ import annotations

import re
import socket
from itertools import pairwise

import kube
import pytest
from events import EventRecorder

from tests.unit.podfiles import faults
from tests.unit.podfiles.fake_api import FakeApi


def test_an_event_is_created_about_the_job(api_server: FakeApi) -> None:
    recorder = EventRecorder(kube.Api())
    assert recorder.stage == "Starting"
    recorder.emit("HostsReady", "2 hosts answer")
    assert recorder.stage == "HostsReady"
    (event,) = api_server.items("core/events")
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1", "kind": "Job", "name": "hvd-master-1", "namespace": "team",
        "uid": "uid-1",
    }  # fmt: skip
    assert (event["reason"], event["action"]) == ("HostsReady", "HostsReady")
    assert (event["message"], event["type"]) == ("2 hosts answer", "Normal")
    assert event["source"] == {"component": "horovod-master"}
    assert event["reportingComponent"] == "horovod-master"
    assert event["reportingInstance"] == socket.gethostname()
    assert re.fullmatch(r"hvd-master-1\.\d{20}", event["metadata"]["name"])
    second = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
    assert re.fullmatch(second + r"\.\d{6}Z", event["eventTime"])
    assert re.fullmatch(second + "Z", event["firstTimestamp"])
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["count"] == 1


def test_a_warning_is_cut_to_what_the_api_server_accepts(api_server: FakeApi) -> None:
    EventRecorder(kube.Api()).emit("Failed", "x" * 5000, warning=True)
    (event,) = api_server.items("core/events")
    assert event["type"] == "Warning"
    # apiserver's validation of events: "can have at most 1024 characters".
    assert event["message"] == "x" * 1024


def test_events_of_one_second_keep_their_order_by_name(api_server: FakeApi) -> None:
    recorder = EventRecorder(kube.Api())
    for reason in ("Started", "HostsReady", "Training"):
        recorder.emit(reason, "")
    events = sorted(api_server.items("core/events"), key=lambda event: event["metadata"]["name"])
    assert [event["reason"] for event in events] == ["Started", "HostsReady", "Training"]
    assert all(first["eventTime"] < second["eventTime"] for first, second in pairwise(events))


@pytest.mark.parametrize(
    "failure",
    [faults.status(403), faults.status(409), faults.status(503), faults.status(429),
     faults.reset, faults.cut_answer, faults.text(200, "")],
    ids=["403", "409", "503", "429", "reset", "cut", "empty"],
)  # fmt: skip
def test_an_event_that_cannot_be_created_is_logged(
    api_server: FakeApi, failure: faults.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.fail("POST", "core/events", failure)
    recorder = EventRecorder(kube.Api())
    recorder.emit("Training", "begins")
    assert recorder.stage == "Training"
    assert "cannot create the event Training: " in capsys.readouterr().out


def test_without_the_api_only_the_stage_changes(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = EventRecorder(None)
    recorder.emit("Finished", "done")
    assert recorder.stage == "Finished"
    assert capsys.readouterr().out == ""
