"""The state of a run with spares."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.run.report import list_report, status_report
from tests.unit.hvdchart.run.test_status import status
from tests.unit.hvdchart.runs import CREATING, MASTER, RUNNING, event, job, pod

SPARE: dict[str, Any] = {
    "metadata": {"name": "hvd-worker", "annotations": {"horovod/spares": "1"}},
    "spec": {"replicas": 3},
}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_run_whose_spare_stands_in_is_running(lost: int) -> None:
    """Whichever pod is not up: it is not needed, and yet told."""
    names = [f"hvd-worker-{ordinal}" for ordinal in range(3)]
    up = [pod(name, "worker", RUNNING, ready=True) for name in names if name != names[lost]]
    current = status([MASTER, *up, pod(names[lost], "worker", PULL)], sets=[SPARE])
    assert current.state == "running"
    assert current.reason.startswith(f"{names[lost]}: ImagePullBackOff")
    assert "image.tag" in current.advice
    assert (current.workers_ready, current.workers_wanted) == (2, 2)
    assert (current.spares_ready, current.spares_wanted) == (0, 1)
    refused = event("hvd-worker", "StatefulSet", "FailedCreate", "exceeded quota: gpus")
    assert "quota" not in status([MASTER, *up], refused, sets=[SPARE]).reason
    head = "hvd: running, 2 of 2 workers up, 0 of 1 spare\n"
    assert status_report(current, "team").startswith(head)
    assert " 2/2+0/1 " in list_report([("team", current)])


def test_a_run_with_too_few_workers_is_waiting_for_any() -> None:
    ready = pod("hvd-worker-2", "worker", RUNNING, ready=True)
    others = [pod(f"hvd-worker-{n}", "worker", CREATING) for n in (0, 1)]
    current = status([MASTER, ready, *others], sets=[SPARE])
    assert current.state == "waiting"
    assert current.reason == (
        "1 of 2 workers are up; hvd-worker-0, hvd-worker-1: ContainerCreating"
    )
    assert current.spares_ready == 0


def test_idle_spares_are_counted_and_scaled_down_ones_are_none() -> None:
    ready = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(3)]
    current = status([MASTER, *ready], sets=[SPARE])
    assert (current.state, current.reason) == ("running", "")
    assert (current.workers_ready, current.spares_ready, current.spares_wanted) == (2, 1, 1)
    ended = status([], sets=[{**SPARE, "spec": {"replicas": 0}}], jobs=[job(("Complete", "", ""))])
    assert (ended.workers_wanted, ended.spares_wanted) == (0, 0)
