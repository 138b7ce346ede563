"""The workers' StatefulSets and pods: scaling, listing, deleting, and why one was not created."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.cluster import kube, statefulsets
from hvd_pods.cluster.job_events import JobEvents
from hvd_pods.master.run_effects import EffectRunner
from hvd_pods.rules.effects import START_RETRY_SECONDS, DeletePods, Effect, ListPods, ScaleUp
from hvd_pods.rules.events import PodsListed
from hvd_pods.rules.run_state import Assignment
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.runs import make_run
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents
from tests.unit.hvd_pods.support.call_limits import ONCE

Capture = pytest.CaptureFixture[str]


def put_number(api_server: FakeApi, **numbers: int) -> None:
    for name, number in numbers.items():
        item = {"metadata": {"name": f"hvd-{name}"}, "spec": {"replicas": number}}
        api_server.put("apps/statefulsets", item)


def replicas(api_server: FakeApi) -> tuple[int, int]:
    """The numbers of workers of hvd-cpu and hvd-gpu."""
    found = {
        item["metadata"]["name"]: item["spec"]["replicas"]
        for item in api_server.items("statefulsets")
    }
    return found["hvd-cpu"], found["hvd-gpu"]


ADAPTIVE = [
    {
        "stateful_set": "hvd-cpu",
        "number": 2,
        "maximum": 2,
        "minimum": 1,
        "slots": 2,
        "revision": "",
    },
    {"stateful_set": "hvd-gpu", "number": 1, "maximum": 1, "slots": 4, "revision": ""},
]


@pytest.fixture
def api(api_server: FakeApi) -> kube.Api:
    put_number(api_server, cpu=2, gpu=0)
    return kube.Api(ONCE)


def event(name: str, message: str, owner: str = "hvd-cpu", **more: Any) -> dict[str, Any]:
    about = {"kind": "StatefulSet", "name": owner}
    fixed = {"metadata": {"name": name}, "involvedObject": about, "reason": "FailedCreate"}
    return {**fixed, "message": message, **more}


@pytest.fixture
def evictions(api: kube.Api, api_server: FakeApi) -> kube.Api:
    """The API server, which has events about two pods of one name."""
    about = {"kind": "Pod", "name": "hvd-cpu-0"}
    for uid, message in (("u0", "an earlier pod's"), ("u1", "exceeds the limit\n1Gi")):
        api_server.put(
            "core/events",
            event(uid, message, reason="Evicted", involvedObject={**about, "uid": uid}),
        )
    return api


class Master:
    """What the master does about pods, of a run with hvd-cpu-0, hvd-cpu-1 and hvd-gpu-0."""

    def __init__(self, api: kube.Api) -> None:
        self.taken = RecordedEvents()
        assignment = Assignment(make_run(), "own", "hvd-master-1", "uid-1")
        self.effects = EffectRunner(assignment, api, JobEvents(None), self.taken)

    def do(self, *effects: Effect) -> None:
        for effect in effects:
            self.effects.carry_out(effect)

    def list_pods(self, *missing: str) -> PodsListed:
        """List the pods, when all that was asked for before is done."""
        number = len(self.taken.of(PodsListed)) + 1
        self.do(ListPods(2, missing))
        return self.taken.wait_for(PodsListed, number)


@pytest.fixture
def master(api: kube.Api) -> Master:
    return Master(api)


def put_pod(api_server: FakeApi, name: str, uid: str = "u1", **parts: Any) -> None:
    labels = {"app.kubernetes.io/instance": "hvd"}
    api_server.put("pods", {"metadata": {"name": name, "uid": uid, "labels": labels}, **parts})


@pytest.mark.parametrize(
    ("current", "changes", "fitted"),
    [
        (0, {}, 2),
        (2, {}, 2),
        # A GitOps tool that ignores the number leaves that of the run before.
        (1, {}, 2),
        (5, {}, 2),
        # A person may have scaled a run that can do with fewer workers.
        (1, {"groups": ADAPTIVE}, 1),
        (0, {"groups": ADAPTIVE}, 2),
        (5, {"groups": ADAPTIVE}, 2),
    ],
)
def test_statefulsets_get_the_number_that_the_run_starts_with(
    api: kube.Api, api_server: FakeApi, current: int, changes: dict[str, Any], fitted: int
) -> None:
    put_number(api_server, cpu=current, gpu=1)
    statefulsets.fit_to_run(api, make_run(**changes), START_RETRY_SECONDS)
    assert replicas(api_server) == (fitted, 1)
    assert len(api_server.asked("PATCH", "apps/statefulsets/hvd-cpu/scale")) == (current != fitted)


def test_workers_stay_while_the_api_server_is_away(
    api: kube.Api, api_server: FakeApi, capsys: Capture
) -> None:
    """One StatefulSet is enough to wait for: there may be many."""
    put_number(api_server, cpu=5, gpu=5)
    api_server.fail("GET", "", faults.status(503))
    statefulsets.fit_to_run(api, make_run(), START_RETRY_SECONDS)
    assert "API server is away" in capsys.readouterr().out
    assert len(api_server.requests) == 1


def test_workers_that_cannot_be_scaled_are_named_and_others_are_scaled(
    api: kube.Api, api_server: FakeApi, capsys: Capture
) -> None:
    put_number(api_server, gpu=3)
    api_server.fail("PATCH", "apps/statefulsets/hvd-cpu/scale", faults.status(503))
    statefulsets.scale_to_zero(api, ["hvd-cpu", "hvd-gpu"])
    output = capsys.readouterr().out
    assert "503" in output
    assert "kubectl scale statefulset --replicas 0 hvd-cpu\n" in output
    assert replicas(api_server) == (2, 0)


def test_the_newest_message_counts() -> None:
    events = [
        event("1", "old", lastTimestamp="10:00:01"),
        event("2", "new", eventTime="10:00:02"),
        event("3", "without a time"),
    ]
    assert statefulsets.newest_message(events) == "new"
    assert statefulsets.newest_message([]) == ""


def test_a_refusal_is_that_of_the_very_stateful_set(api: kube.Api, api_server: FakeApi) -> None:
    """A release of the same name before it was refused its pods, too."""

    def put_refusal(uid: str, time: str) -> None:
        about = {"kind": "StatefulSet", "name": "hvd-cpu", "uid": uid}
        one = event(f"of {uid}", f"quota of {uid}", lastTimestamp=time)
        api_server.put("core/events", {**one, "involvedObject": about})

    put_refusal("u0", "10:00:02")
    put_refusal("u1", "10:00:01")
    metadata = {"name": "hvd-cpu", "uid": "u1"}
    api_server.put("apps/statefulsets", {"metadata": metadata, "spec": {"replicas": 1}})
    assert statefulsets.creation_failure(api, "hvd-cpu") == "quota of u1"


UIDS = {"hvd-cpu-0": "u1", "hvd-cpu-1": "u2"}


def test_evictions_are_those_of_the_very_pods(evictions: kube.Api) -> None:
    found = statefulsets.find_evictions(evictions, UIDS, 1.0)
    assert found == {"hvd-cpu-0": "exceeds the limit 1Gi"}


def test_no_eviction_is_known_of_a_pod_without_a_uid(evictions: kube.Api) -> None:
    """DNS does not tell which pod a worker is."""
    assert statefulsets.find_evictions(evictions, {"hvd-cpu-0": ""}, 1.0) == {}


def test_evictions_that_cannot_be_read_are_logged(
    evictions: kube.Api, api_server: FakeApi, capsys: Capture
) -> None:
    api_server.fail("GET", "core/events", faults.status(403))
    assert statefulsets.find_evictions(evictions, UIDS, 1.0) == {}
    assert "403" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        pytest.param(403, [], id="a refusal says nothing"),
        pytest.param(404, ["hvd-gpu"], id="not there"),
    ],
)
def test_deleted_statefulset_differs_from_one_without_pods(
    api_server: FakeApi, master: Master, code: int, gone: list[str]
) -> None:
    api_server.fail("GET", "apps/statefulsets/hvd-gpu/scale", faults.status(code))
    assert [*master.list_pods("hvd-gpu-0").gone] == gone


def test_a_statefulset_that_is_there_was_not_deleted(master: Master) -> None:
    assert not master.list_pods("hvd-cpu-0").gone


def test_pods_are_listed_without_what_may_be_secret(api_server: FakeApi, master: Master) -> None:
    environment = {"name": "worker", "env": [{"name": "TOKEN", "value": "secret"}]}
    spec = {"nodeName": "n1", "containers": [environment]}
    put_pod(api_server, "hvd-cpu-0", spec=spec, status={"phase": "Running"})
    api_server.put("pods", {"metadata": {"name": "other", "labels": {}}})
    listed = master.list_pods()
    labels = {"app.kubernetes.io/instance": "hvd"}
    assert listed == PodsListed(
        2,
        {
            "hvd-cpu-0": {
                "metadata": {"name": "hvd-cpu-0", "uid": "u1", "labels": labels},
                "spec": {"nodeName": "n1"},
                "status": {"phase": "Running"},
            }
        },
    )


def test_refusal_of_a_pod_is_looked_up_once_for_each_statefulset(
    api_server: FakeApi, master: Master
) -> None:
    put_pod(api_server, "hvd-gpu-0")
    api_server.put("events", event("1", "pod hvd-cpu-0: quota"), event("2", "no", "hvd-gpu"))
    listed = master.list_pods("hvd-cpu-0", "hvd-cpu-1", "hvd-gpu-0")
    assert listed.refusals == {"hvd-cpu": "pod hvd-cpu-0: quota"}
    assert len(api_server.asked("GET", "core/events")) == 1


def test_refusal_that_cannot_be_read_is_reported_with_the_reason(
    api_server: FakeApi, master: Master
) -> None:
    api_server.fail("GET", "core/events", faults.status(403, "no right"))
    assert master.list_pods("hvd-cpu-0").refusals == {"hvd-cpu": "403: no right"}


def test_pods_that_cannot_be_read_are_reported_with_the_reason(
    api_server: FakeApi, master: Master
) -> None:
    api_server.fail("GET", "core/pods", faults.status(503, "away"))
    assert master.list_pods("hvd-cpu-0") == PodsListed(2, problem="503: away")


def test_only_the_pod_that_was_meant_is_deleted(
    api_server: FakeApi, master: Master, capsys: Capture
) -> None:
    """A StatefulSet makes another one of its name; somebody else may have deleted it."""
    put_pod(api_server, "hvd-cpu-0")
    put_pod(api_server, "hvd-cpu-1", uid="u2")
    master.do(DeletePods(dict.fromkeys(("hvd-cpu-0", "hvd-cpu-1", "gone"), "u1")))
    assert [*master.list_pods().pods] == ["hvd-cpu-1"]
    assert "cannot replace" not in capsys.readouterr().out


def test_pod_that_cannot_be_deleted_is_named(
    api_server: FakeApi, master: Master, capsys: Capture
) -> None:
    put_pod(api_server, "hvd-cpu-0")
    put_pod(api_server, "hvd-gpu-0")
    api_server.fail("DELETE", "core/pods/hvd-gpu-0", faults.status(403))
    master.do(DeletePods(dict.fromkeys(("hvd-gpu-0", "hvd-cpu-0"), "u1")))
    assert [*master.list_pods().pods] == ["hvd-gpu-0"], "the others are deleted"
    assert " hvd-gpu-0: 403" in capsys.readouterr().out


@pytest.mark.parametrize("grace", [None, 0])
def test_pod_is_deleted_with_its_own_grace_or_at_once(
    api_server: FakeApi, master: Master, grace: int | None
) -> None:
    """At once where its node does not say that it has ended."""
    put_pod(api_server, "hvd-gpu-0")
    master.do(DeletePods({"hvd-gpu-0": "u1"}, grace))
    assert not master.list_pods().pods
    (request,) = api_server.asked("DELETE", "core/pods/hvd-gpu-0")
    assert request.body.get("gracePeriodSeconds") == grace


def test_statefulset_is_scaled_up_unless_it_has_enough_workers(
    api_server: FakeApi, master: Master
) -> None:
    master.do(ScaleUp("hvd-cpu", 3, below=2), ScaleUp("hvd-gpu", 3, below=1))
    master.list_pods()
    assert replicas(api_server) == (2, 3)


def test_statefulset_that_cannot_be_scaled_up_is_named(
    api_server: FakeApi, master: Master, capsys: Capture
) -> None:
    api_server.fail("GET", "apps/statefulsets/hvd-cpu", faults.status(403))
    master.do(ScaleUp("hvd-cpu", 3, below=3))
    master.list_pods()
    assert replicas(api_server) == (2, 0)
    assert " hvd-cpu to 3: 403" in capsys.readouterr().out
