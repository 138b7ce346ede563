"""Events about the Job at each stage of the run."""

from __future__ import annotations

import re
import socket
import threading
from itertools import pairwise

import pytest

from hvd_pods.master import events, kube
from hvd_pods.master.events import EventRecorder
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.fakes.server import Handler


def test_an_event_is_created_about_the_job(api_server: FakeApi) -> None:
    recorder = EventRecorder(kube.Api())
    assert recorder.stage == "Starting"
    recorder.emit("HostsReady", "2 hosts respond")
    assert recorder.stage == "HostsReady"
    recorder.close()
    (event,) = api_server.items("core/events")
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1", "kind": "Job", "name": "hvd-master-1", "namespace": "team",
        "uid": "uid-1",
    }  # fmt: skip
    assert (event["reason"], event["action"]) == ("HostsReady", "HostsReady")
    assert (event["message"], event["type"]) == ("2 hosts respond", "Normal")
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
    recorder = EventRecorder(kube.Api())
    recorder.emit("Failed", "x" * 5000, warning=True)
    recorder.close()
    (event,) = api_server.items("core/events")
    assert event["type"] == "Warning"
    # apiserver's validation of events: "can have at most 1024 characters".
    assert event["message"] == "x" * 1024


def test_events_of_one_second_keep_their_order_by_name(api_server: FakeApi) -> None:
    recorder = EventRecorder(kube.Api())
    for reason in ("Started", "HostsReady", "Training"):
        recorder.emit(reason, "")
    recorder.close()
    created = sorted(api_server.items("core/events"), key=lambda event: event["metadata"]["name"])
    assert [event["reason"] for event in created] == ["Started", "HostsReady", "Training"]
    assert all(first["eventTime"] < second["eventTime"] for first, second in pairwise(created))


def test_a_warning_within_a_stage_leaves_the_stage(api_server: FakeApi) -> None:
    recorder = EventRecorder(kube.Api())
    recorder.emit("Started", "waiting")
    recorder.warn("HostsMissing", "no image")
    recorder.close()
    assert recorder.stage == "Started"
    assert [(item["reason"], item["type"]) for item in api_server.items("core/events")] == [
        ("Started", "Normal"),
        ("HostsMissing", "Warning"),
    ]


FAILURES = {
    "503": faults.status(503),
    "429": faults.status(429),
    "reset": faults.reset,
    "cut": faults.cut_answer,
    "empty": faults.text(200, ""),
}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_an_event_is_tried_again_and_keeps_its_place(
    api_server: FakeApi, failure: faults.Failure
) -> None:
    api_server.fail("POST", "core/events", failure, times=3)
    recorder = EventRecorder(kube.Api())
    recorder.emit("Training", "begins")
    recorder.emit("Finished", "done")
    recorder.close()
    assert [item["reason"] for item in api_server.items("core/events")] == ["Training", "Finished"]


@pytest.mark.parametrize("failure", [faults.status(403), faults.status(422)], ids=["403", "422"])
def test_an_event_that_cannot_be_created_is_logged(
    api_server: FakeApi, failure: faults.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.fail("POST", "core/events", failure)
    recorder = EventRecorder(kube.Api())
    recorder.emit("Training", "begins")
    recorder.close()
    assert recorder.stage == "Training"
    assert "cannot create the event Training: " in capsys.readouterr().out


@pytest.mark.usefixtures("patient")
def test_an_event_whose_first_answer_was_lost_is_created_once(
    api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    def create_and_reset(handler: Handler) -> None:
        api_server.put("core/events", api_server.requests[-1].body)
        faults.reset(handler)

    api_server.fail("POST", "core/events", create_and_reset)
    recorder = EventRecorder(kube.Api())
    recorder.emit("Training", "begins")
    recorder.close()
    assert len(api_server.items("core/events")) == 1
    assert "cannot create" not in capsys.readouterr().out


def test_an_api_server_that_does_not_answer_delays_neither_the_training_nor_the_end(
    api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(events, "CLOSE_WITHIN", 0.01)

    def wait_and_reset(handler: Handler) -> None:
        assert answer.wait(faults.TIMEOUT)
        faults.reset(handler)

    api_server.fail("POST", "core/events", wait_and_reset)
    recorder = EventRecorder(kube.Api())
    recorder.emit("Training", "begins")
    recorder.emit("Finished", "done")
    recorder.close()
    assert api_server.items("core/events") == []
    answer.set()
    # It would go on beside the next tests.
    recorder._sender.join(faults.TIMEOUT)


def test_without_the_api_only_the_stage_and_the_numbers_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorder = EventRecorder(None)
    assert (recorder.launches, recorder.count_hosts()) == (0, 0)
    recorder.emit("Training", "begins")
    recorder.follow_hosts(lambda: 3)
    assert (recorder.launches, recorder.count_hosts()) == (1, 3)
    recorder.warn("HostLost", "a host")
    recorder.warn("Stalled", "a rank")
    recorder.emit("Finished", "done")
    recorder.close()
    assert (recorder.stage, recorder.launches, recorder.stalls) == ("Finished", 1, 1)
    assert capsys.readouterr().out == ""


def test_ranks_that_others_wait_for_are_counted_apart_from_other_problems() -> None:
    recorder = EventRecorder(None)
    for reason in ("Stalled", "HostLost", "Stalled", "HostsMissing", "Stalled"):
        recorder.warn(reason, "")
    assert recorder.stalls == 3


def test_an_event_that_is_no_stage_is_no_warning_either(api_server: FakeApi) -> None:
    recorder = EventRecorder(kube.Api())
    recorder.emit("Training", "begins")
    recorder.note("ResultsStored", "all of them")
    recorder.close()
    assert recorder.stage == "Training"
    assert [(item["reason"], item["type"]) for item in api_server.items("core/events")] == [
        ("Training", "Normal"),
        ("ResultsStored", "Normal"),
    ]
