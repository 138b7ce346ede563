"""Why a worker's pod does not run; and that pods and library judge each known reason alike."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.common import pod_problems
from hvdchart.run.state import pod_problems as of_hvdchart


def container(state: dict[str, Any], **last: Any) -> dict[str, Any]:
    return {"name": "worker", "image": "team/train:1", "state": state, "lastState": last}


def waiting(reason: str, message: str = "why") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def statuses(
    state: dict[str, Any], init: dict[str, Any] | None = None, **last: Any
) -> dict[str, Any]:
    """The status of a pod with a container and an init container."""
    inits = [container(init)] if init else []
    return {"initContainerStatuses": inits, "containerStatuses": [container(state, **last)]}


def unschedulable(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [{**condition, "message": message}]}


CRASHED = statuses(waiting("CrashLoopBackOff"), terminated={"exitCode": 78, "message": "no\n"})
FAILED, ENDED = ({"terminated": {"exitCode": code}} for code in (1, 0))


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (CRASHED, "container worker exited with 78: no"),
        (statuses(waiting("PodInitializing"), FAILED), "container worker exited with 1"),
        (statuses(waiting("ErrImagePull"), ENDED), "ErrImagePull of image team/train:1: why"),
        ({"phase": "Running", "containerStatuses": [container({"running": {}})]}, "phase Running"),
        (unschedulable("0/1 nodes"), "cannot be scheduled: 0/1 nodes"),
        ({"phase": "Pending", "conditions": [{"status": "False"}]}, "phase Pending"),
        ({}, "phase unknown"),
    ],
)
def test_a_pods_status_becomes_a_reason(status: dict[str, Any], reason: str) -> None:
    assert pod_problems.diagnose({"status": status}).reason == reason


def known() -> list[Any]:
    """Every entry of the table."""
    return [
        pytest.param(section, sign, entry, id=f"{section} {sign}")
        for section, entries in pod_problems.PROBLEMS.items()
        for sign, entry in entries.items()
    ]


@pytest.mark.parametrize(("section", "sign", "entry"), known())
def test_pods_and_library_judge_each_known_reason_alike(
    section: str, sign: str, entry: dict[str, Any]
) -> None:
    pod: dict[str, Any] = {"metadata": {"name": "hvd-worker-0"}, "status": {}}
    events: list[dict[str, Any]] = []
    if section == "refusal":
        diagnosis = pod_problems.diagnose_refusal(f'pods "hvd-worker-0" is forbidden: {sign} x')
        remedy = of_hvdchart.remedy_for_refusal(diagnosis.reason)
    else:
        if section == "scheduling":
            pod["status"] = unschedulable(f"0/3 nodes are available: 3 {sign}.")
        elif section == "image":
            pod["status"] = statuses(waiting("ErrImagePull", f"code = Unknown desc = {sign}: x"))
        elif section == "event":
            about = {"involvedObject": {"name": "hvd-worker-0"}, "type": "Warning", "reason": sign}
            events.append(about)
            pod["status"] = statuses(waiting("ContainerCreating"))
        elif section == "exit":
            ended = {"exitCode": 128, "reason": "StartError", "message": f"x: {sign}: unknown"}
            pod["status"] = statuses(waiting("CrashLoopBackOff"), terminated=ended)
        else:
            pod["status"] = statuses(waiting(sign))
        diagnosis = pod_problems.diagnose(pod)
        problem = of_hvdchart.problem_of(pod, events)
        assert problem
        remedy = problem.remedy
    assert remedy == entry["remedy"]
    # The master reads no events of pods.
    if section != "event":
        assert (diagnosis.permanent, diagnosis.remedy) == (entry["permanent"], entry["remedy"])


KILLED = {"exitCode": 137, "reason": "OOMKilled"}


@pytest.mark.parametrize(
    ("status", "is_problem"),
    [
        (statuses({"terminated": KILLED}), True),
        (CRASHED, True),
        # It runs again, whatever it was.
        (statuses({"running": {}}, terminated=KILLED), False),
        (statuses({"running": {}}, terminated={"exitCode": 1}), False),
        (statuses({"running": {}}), False),
    ],
)
def test_the_library_shows_what_the_master_calls_a_problem(
    status: dict[str, Any], is_problem: bool
) -> None:
    pod = {"metadata": {"name": "hvd-worker-0"}, "status": status}
    assert pod_problems.diagnose(pod).is_problem == is_problem
    assert (of_hvdchart.problem_of(pod, []) is not None) == is_problem


def test_a_pod_that_a_queue_has_not_admitted_is_queued() -> None:
    """As Kueue holds pods: kubernetes.io, "Pod Scheduling Readiness"."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gate = {"name": "kueue.x-k8s.io/admission"}
    pod = {"spec": {"schedulingGates": [gate]}, "status": {"conditions": [condition]}}
    diagnosis = pod_problems.diagnose(pod)
    assert diagnosis.reason == "in a queue (scheduling gate kueue.x-k8s.io/admission)"
    assert (diagnosis.queued, diagnosis.permanent) == (True, False)


@pytest.mark.parametrize(
    ("metadata", "state", "reason", "may_take_long"),
    [
        ({}, "running", "the container staging fetches the data on node-7", True),
        ({}, "waiting", "phase Pending on node-7", False),
        ({"deletionTimestamp": "t"}, "running", "terminating on node-7", False),
    ],
)
def test_a_pod_that_fetches_its_data_may_take_long(
    metadata: dict[str, str], state: str, reason: str, may_take_long: bool
) -> None:
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{**container({state: {}}), "name": "staging"}],
    }
    pod = {"metadata": metadata, "spec": {"nodeName": "node-7"}, "status": status}
    diagnosis = pod_problems.diagnose(pod)
    assert (diagnosis.reason, diagnosis.queued) == (reason, may_take_long)
