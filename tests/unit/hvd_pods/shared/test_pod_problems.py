"""Why a worker's pod does not run; and that pods and library judge each known reason alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hvd_pods.shared import pod_problems
from hvdchart.run.state import run_problems


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


def known(*sections: str) -> list[Any]:
    """Every entry of these sections of the table."""
    return [
        pytest.param(section, sign, entry, id=f"{section} {sign}")
        for section in sections
        for sign, entry in pod_problems.PROBLEMS[section].items()
    ]


def start_error(sign: str) -> dict[str, Any]:
    ended = {"exitCode": 128, "reason": "StartError", "message": f"x: {sign}: unknown"}
    return statuses(waiting("CrashLoopBackOff"), terminated=ended)


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


# The status of a pod that has a problem, by the section of the table.
STATUSES: dict[str, Callable[[str], dict[str, Any]]] = {
    "scheduling": lambda sign: unschedulable(f"0/3 nodes are available: 3 {sign}."),
    "image": lambda sign: statuses(waiting("ErrImagePull", f"code = Unknown desc = {sign}: x")),
    "exit": start_error,
}
WAITING_PROBLEMS = [
    section for section in pod_problems.PROBLEMS if section not in {*STATUSES, "refusal", "event"}
]
STATUSES.update({reason: lambda sign: statuses(waiting(sign)) for reason in WAITING_PROBLEMS})
WORKER: dict[str, Any] = {"metadata": {"name": "hvd-worker-0"}}


@pytest.mark.parametrize(("section", "sign", "entry"), known(*STATUSES))
def test_pods_and_library_judge_each_known_status_alike(
    section: str, sign: str, entry: dict[str, Any]
) -> None:
    pod = {**WORKER, "status": STATUSES[section](sign)}
    diagnosis = pod_problems.diagnose(pod)
    assert (diagnosis.is_permanent, diagnosis.remedy) == (entry["permanent"], entry["remedy"])
    problem = run_problems.problem_of(pod, [])
    assert problem
    assert problem.remedy == entry["remedy"]


@pytest.mark.parametrize(("section", "sign", "entry"), known("refusal"))
def test_pods_and_library_judge_each_known_refusal_alike(
    section: str, sign: str, entry: dict[str, Any]
) -> None:
    diagnosis = pod_problems.diagnose_refusal(f'pods "hvd-worker-0" is forbidden: {sign} x')
    assert (diagnosis.is_permanent, diagnosis.remedy) == (entry["permanent"], entry["remedy"])
    assert run_problems.remedy_for_refusal(diagnosis.reason) == entry["remedy"]


@pytest.mark.parametrize(("section", "sign", "entry"), known("event"))
def test_library_judges_each_known_event(section: str, sign: str, entry: dict[str, Any]) -> None:
    """The master reads no events of pods."""
    about = {"involvedObject": {"name": "hvd-worker-0"}, "type": "Warning", "reason": sign}
    pod = {**WORKER, "status": statuses(waiting("ContainerCreating"))}
    problem = run_problems.problem_of(pod, [about])
    assert problem
    assert problem.remedy == entry["remedy"]


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
    assert (run_problems.problem_of(pod, []) is not None) == is_problem


@pytest.mark.parametrize(
    ("kind", "name", "limit"),
    [
        ("container", "master", "`master.resources.limits.memory`"),
        ("container", "worker", "`worker.resources.limits.memory`"),
        ("initContainer", "staging", "`worker.resources.limits.memory`"),
        ("container", "tensorboard", "`tensorboard.resources.limits.memory`"),
        ("container", "mine", "container mine"),
    ],
)
def test_container_out_of_memory_is_told_its_own_limit(kind: str, name: str, limit: str) -> None:
    container = {"name": name, "resources": {"limits": {"memory": "7Gi"}}}
    status = {"name": name, "state": {"terminated": KILLED}}
    pod = {"spec": {f"{kind}s": [container]}, "status": {f"{kind}Statuses": [status]}}
    diagnosis = pod_problems.diagnose(pod)
    assert limit in diagnosis.remedy
    assert "7Gi" in diagnosis.reason


def test_a_pod_that_a_queue_has_not_admitted_is_queued() -> None:
    """As Kueue holds pods: kubernetes.io, "Pod Scheduling Readiness"."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gate = {"name": "kueue.x-k8s.io/admission"}
    pod = {"spec": {"schedulingGates": [gate]}, "status": {"conditions": [condition]}}
    diagnosis = pod_problems.diagnose(pod)
    assert gate["name"] in diagnosis.reason
    assert diagnosis.is_queued
    assert not diagnosis.is_permanent


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
    assert (diagnosis.reason, diagnosis.is_queued) == (reason, may_take_long)
