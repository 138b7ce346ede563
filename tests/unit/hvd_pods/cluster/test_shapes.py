"""What the API server answers has the shape that the master relies on, or counts as no answer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_pods.cluster import kube
from hvd_pods.cluster.addresses import pod_endpoints
from hvd_pods.cluster.shapes import ITEM, fit
from hvd_pods.cluster.statefulsets import newest_message
from hvd_pods.common.pod_problems import diagnose
from hvd_pods.master import record_io
from hvd_pods.master.effects import shorten_pod
from hvd_pods.rules import ending
from hvd_pods.rules import messages as m
from hvd_pods.rules.messages import JobRead, ReadJob, RecordFailed
from hvd_pods.rules.retries import Retries
from hvd_pods.rules.state import Facts
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.unit.hvd_pods.rules.world import World, one_group
from tests.unit.hvd_pods.runs import make_run

TIME = "2026-01-01T10:00:00Z"
WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}
OBJECTS: dict[str, dict[str, Any]] = {
    "job": {
        "spec": {"backoffLimit": 2, "activeDeadlineSeconds": 60, "suspend": True},
        "status": {
            "failed": 1,
            "startTime": TIME,
            "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}],
        },
    },
    "pod": {
        "spec": {"nodeName": "n", "schedulingGates": [{"name": "queue"}]},
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "low on memory",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            ],
            "initContainerStatuses": [{"name": "staging", "state": {"running": {}}}],
            "containerStatuses": [
                {"name": "worker", "image": "i", "state": WAITING},
                {"name": "x", "lastState": {"terminated": {"exitCode": 78, "message": "no"}}},
            ],
        },
    },
    "slice": {
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.0.0.1"],
                "conditions": {"serving": True},
                "nodeName": "n",
                "targetRef": {"kind": "Pod", "name": "w-0", "uid": "u"},
            }
        ],
    },
    "event": {
        "message": "pod w-0",
        "lastTimestamp": TIME,
        "involvedObject": {"name": "w-0", "uid": "u"},
    },
}
METADATA = {"name": "x", "uid": "u", "labels": {"a": "b"}, "deletionTimestamp": TIME}
NAMES = ["name", "type", "status", "reason", "message", "exitCode", "waiting", "metadata"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(TIME),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a value with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in list(items):
        found.append((value, key))
        if isinstance(item, (dict, list)):
            found += places(item)
    return found


def use(item: dict[str, Any]) -> None:
    """Do with an object what the master does with it."""
    job = record_io.shorten_job(item)
    for read in (ending.failure_reason, ending.deadline, ending.is_over, ending.is_withdrawn):
        read(job)
    ending.will_retry(job, 1, 0.0)
    ending.interruption(job)
    Retries().note_job(job)
    diagnose(item)
    world = World(one_group())
    world.tell(m.Started())
    world.settle(until=m.Prepare)
    world.tell(m.PodsListed(world.state.attempt.number, {"w-0": shorten_pod(item)}))
    pod_endpoints([item])
    newest_message([item], "w-0")


@pytest.mark.fuzz
@pytest.mark.parametrize("name", OBJECTS)
@given(data=st.data())
def test_object_of_another_shape_is_refused_or_harmless(name: str, data: st.DataObject) -> None:
    item = copy.deepcopy({"metadata": METADATA, **OBJECTS[name]})
    use(fit(item, ITEM))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(item)))
        container[key] = data.draw(JSON)
    try:
        item = fit(item, ITEM)
    except ValueError:
        return
    use(item)


def test_nulls_are_fields_that_are_not_there() -> None:
    item = {"metadata": METADATA, "data": None, "status": {"conditions": None}, "endpoints": None}
    assert fit(item, ITEM) == {"metadata": METADATA, "status": {}}


WRONG = [
    "[]",
    '{"metadata": []}',
    '{"metadata": {}, "data": ["x"]}',
    '{"data": {"a": 1}}',
    "[" * 9999,
]


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize(
    "ask",
    [
        lambda api: record_io.read_job(api, make_run(), ReadJob(False, 0.0), 0.0),
        lambda api: record_io.RecordClient(api, Facts(make_run(), "own", "j", "u")).read(
            m.ReadRecord()
        ),
    ],
    ids=["Job", "record"],
)
def test_answer_of_another_shape_is_no_answer(
    api_server: FakeApi, text: str, ask: Callable[[kube.Api], Any]
) -> None:
    api_server.fail("GET", "", faults.text(200, text))
    told = ask(kube.Api())
    assert told == JobRead(ending.UNREADABLE) or (
        isinstance(told, RecordFailed) and told.is_temporary
    )
