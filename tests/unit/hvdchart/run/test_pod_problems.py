"""What is wrong with a pod."""

from __future__ import annotations

from typing import Any

from hvdchart.run.pod_problems import problem_of
from tests.unit.hvdchart.runs import RUNNING, pod, terminated


def reason_of(made: Any) -> str:
    problem = problem_of(made, [])
    return problem.reason if problem else ""


def test_only_a_failed_pod_has_the_reason_of_its_status() -> None:
    evicted = pod("hvd-worker-0", "worker", phase="Failed", reason="Evicted")
    assert reason_of(evicted) == "Evicted: node was low on memory"
    running = pod("hvd-worker-0", "worker", RUNNING, reason="Evicted")
    assert reason_of(running) == ""


def test_only_a_crash_loop_has_the_message_of_the_container_before() -> None:
    last = terminated(3, "no data")
    crashing = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    pulling = {"waiting": {"reason": "ErrImagePull", "message": "no such team/train:1"}}
    of_crash, of_image = (
        pod("hvd-worker-0", "worker", state, last=last) for state in (crashing, pulling)
    )
    assert reason_of(of_crash) == "CrashLoopBackOff: it ended with exit code 3: no data"
    assert reason_of(of_image) == "ErrImagePull: no such team/train:1"
    assert reason_of(pod("hvd-worker-0", "worker", crashing)) == "CrashLoopBackOff: back-off 10s"
