"""The workers' StatefulSets: scaling, and why a pod was not created."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.master import kube, statefulsets
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.unit.podfiles.runs import make_run


def replicas(api_server: FakeApi, name: str) -> Any:
    item = api_server.find("apps/statefulsets", name)
    return item and item["spec"]["replicas"]


@pytest.fixture
def api(api_server: FakeApi) -> kube.Api:
    for name, number in (("hvd-cpu", 2), ("hvd-gpu", 0)):
        item = {"metadata": {"name": name}, "spec": {"replicas": number}}
        api_server.put("apps/statefulsets", item)
    return kube.Api()


def test_each_statefulset_is_scaled_to_its_number(api: kube.Api, api_server: FakeApi) -> None:
    statefulsets.scale(api, {"hvd-cpu": 5, "hvd-gpu": 1})
    assert (replicas(api_server, "hvd-cpu"), replicas(api_server, "hvd-gpu")) == (5, 1)


@pytest.mark.parametrize(
    ("current", "changes", "fitted"),
    [
        (0, {}, 2),
        (2, {}, 2),
        # A GitOps tool that ignores the number leaves that of the run before.
        (1, {}, 2),
        (5, {}, 2),
        # A person may have scaled an elastic run.
        (1, {"mode": "elastic"}, 1),
        (0, {"mode": "elastic"}, 2),
    ],
)
def test_statefulsets_get_the_number_that_the_run_starts_with(
    api: kube.Api, api_server: FakeApi, current: int, changes: dict[str, Any], fitted: int
) -> None:
    scale = "apps/statefulsets/hvd-cpu/scale"
    statefulsets.scale(api, {"hvd-cpu": current, "hvd-gpu": 1})
    before = len(api_server.asked("PATCH", scale))
    statefulsets.fit_to_run(api, make_run(**changes))
    assert (replicas(api_server, "hvd-cpu"), replicas(api_server, "hvd-gpu")) == (fitted, 1)
    assert len(api_server.asked("PATCH", scale)) - before == int(current != fitted)


def test_a_number_that_cannot_be_set_is_logged_and_the_others_are_set(
    api: kube.Api, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.fail("GET", "apps/statefulsets/hvd-cpu", faults.status(403))
    statefulsets.fit_to_run(api, make_run())
    assert "cannot scale hvd-cpu to 2: 403" in capsys.readouterr().out
    assert replicas(api_server, "hvd-gpu") == 1


def test_the_training_waits_for_one_statefulset_while_the_api_is_away(
    api: kube.Api, api_server: FakeApi
) -> None:
    api_server.fail("GET", "apps/statefulsets", faults.status(503), times=99)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statefulsets, "START_RETRY_SECONDS", 0.0)
        statefulsets.fit_to_run(api, make_run())
    assert len(api_server.asked("GET", "apps/statefulsets/hvd-cpu/scale")) == 1
    assert not api_server.asked("GET", "apps/statefulsets/hvd-gpu/scale")


STAY = (
    "] the API server is away: not scaled hvd-cpu to 2, hvd-gpu to 1; workers beyond these numbers "
    "stay for this attempt\n"
)


@pytest.mark.parametrize("when", ["before the attempt", "during the first call"])
def test_workers_that_stay_while_the_api_is_away_are_named(
    api: kube.Api,
    api_server: FakeApi,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    when: str,
) -> None:
    monkeypatch.setattr(statefulsets, "START_RETRY_SECONDS", 0.0)
    statefulsets.scale(api, {"hvd-cpu": 5, "hvd-gpu": 5})
    api_server.fail("GET", "", faults.status(503))
    if when == "before the attempt":
        with pytest.raises(kube.ApiError):
            api.get("core/pods/a", retry_seconds=0.0)
    statefulsets.fit_to_run(api, make_run())
    assert capsys.readouterr().out.endswith(STAY)
    api.get("apps/statefulsets/hvd-cpu")
    statefulsets.fit_to_run(api, make_run())
    assert (replicas(api_server, "hvd-cpu"), replicas(api_server, "hvd-gpu")) == (2, 1)
    assert "away" not in capsys.readouterr().out


def test_scaling_to_zero_is_logged(
    api: kube.Api, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    statefulsets.scale_to_zero(api, ["hvd-cpu", "hvd-gpu"])
    assert (replicas(api_server, "hvd-cpu"), replicas(api_server, "hvd-gpu")) == (0, 0)
    assert capsys.readouterr().out.endswith("] workers scaled to 0\n")


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.reset, faults.cut_answer],
    ids=["503", "reset", "cut"],
)
def test_workers_that_cannot_be_scaled_to_zero_are_named_and_the_others_are_scaled(
    api: kube.Api,
    api_server: FakeApi,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api_server.fail("PATCH", "apps/statefulsets/hvd-cpu/scale", failure)
    statefulsets.scale_to_zero(api, ["hvd-cpu", "hvd-gpu"])
    output = capsys.readouterr().out
    assert "cannot scale hvd-cpu to 0: " in output
    assert "yourself with kubectl scale statefulset --replicas 0 hvd-cpu\n" in output
    assert "workers scaled to 0" not in output
    assert (replicas(api_server, "hvd-cpu"), replicas(api_server, "hvd-gpu")) == (2, 0)


def test_a_statefulset_that_is_gone_has_no_workers(
    api: kube.Api, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    statefulsets.scale_to_zero(api, ["gone", "hvd-cpu"])
    assert replicas(api_server, "hvd-cpu") == 0
    assert capsys.readouterr().out.endswith("] workers scaled to 0\n")


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_scaling_to_zero_waits_for_an_api_server_that_is_away(
    api: kube.Api, api_server: FakeApi
) -> None:
    api_server.fail("PATCH", "apps/statefulsets", faults.reset, times=20)
    statefulsets.scale_to_zero(api, ["hvd-cpu", "hvd-gpu"])
    assert (replicas(api_server, "hvd-cpu"), replicas(api_server, "hvd-gpu")) == (0, 0)


@pytest.mark.parametrize("name", ["hvd-cpu", "hvd-gpu"])
def test_only_workers_that_were_scaled_to_zero_are_scaled_up(
    api: kube.Api, api_server: FakeApi, name: str
) -> None:
    statefulsets.set_number(api, name, 3, retry_seconds=0.0, below=1)
    assert replicas(api_server, name) == {"hvd-cpu": 2, "hvd-gpu": 3}[name]


def test_a_scale_without_replicas_is_zero(
    api: kube.Api, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API server leaves a 0 out."""
    api_server.fail("GET", "apps/statefulsets/hvd-gpu", faults.text(200, '{"spec": {}}'))
    statefulsets.set_number(api, "hvd-gpu", 1, retry_seconds=0.0, below=1)
    assert capsys.readouterr().out.endswith("] hvd-gpu had 0 workers: scaled to 1\n")


def event(name: str, message: str, owner: str = "hvd-cpu", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "StatefulSet", "name": owner},
        "reason": "FailedCreate",
        "message": message,
        **more,
    }


def test_the_newest_failure_to_create_the_pod_is_returned(
    api: kube.Api, api_server: FakeApi
) -> None:
    assert statefulsets.creation_failure(api, "hvd-cpu", "hvd-cpu-0") == ""
    api_server.put("core/events", event("1", "pod hvd-cpu-0: quota", lastTimestamp="10:00:02"))
    api_server.put("core/events", event("2", "pod hvd-cpu-0: older", lastTimestamp="10:00:01"))
    api_server.put("core/events", event("3", "another set's", "hvd-gpu", lastTimestamp="10:00:09"))
    api_server.put("core/events", event("4", "scaled", reason="Scaled", lastTimestamp="10:00:09"))
    job = event("5", "of a Job", lastTimestamp="10:00:09")
    job["involvedObject"]["kind"] = "Job"
    api_server.put("core/events", job)
    assert statefulsets.creation_failure(api, "hvd-cpu", "hvd-cpu-0") == "pod hvd-cpu-0: quota"


def test_a_message_about_the_pod_is_preferred_to_newer_ones_about_others() -> None:
    events = [
        event("1", "pod hvd-cpu-0: old", lastTimestamp="10:00:01"),
        event("2", "pod hvd-cpu-0: new", eventTime="10:00:02"),
        event("3", "pod hvd-cpu-1: newest", lastTimestamp="10:00:03"),
        event("4", "pod hvd-cpu-0: without a time"),
    ]
    assert statefulsets.newest_message(events, "hvd-cpu-0") == "pod hvd-cpu-0: new"
    # The controller stops at the first pod that is refused: it stands for all.
    assert statefulsets.newest_message(events, "hvd-cpu-7") == "pod hvd-cpu-1: newest"
    assert statefulsets.newest_message([], "hvd-cpu-0") == ""
