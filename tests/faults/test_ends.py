"""Trainings that cannot go on end once, and tell the reason."""

from __future__ import annotations

import time

import pytest

from tests.faults.training import TRAINING_STEPS, Training
from tests.support.namespace import Values


def failing(training: Training, how: str) -> Values:
    """The arguments of a script that fails on rank 1, in every attempt."""
    args = training.values(TRAINING_STEPS)["master"]["args"]
    return {"args": [*args, "--fail", how, "--rank", "1"]}


def end(training: Training, began: float) -> str:
    """Wait for the end; return the reason, which the termination message and the event have."""
    reason = training.end(began)
    assert reason in training.namespace.master_events("Failed")[-1]["message"]
    return reason


@pytest.mark.rare
@pytest.mark.fault("script raises on one rank")
def test_exception_on_one_rank(training: Training) -> None:
    began = time.time()
    training.install(TRAINING_STEPS, master=failing(training, "raise"))
    reason = end(training, began)
    assert reason.startswith(
        "rank 1 on hvd-worker-1: ValueError: this batch has no labels, train.py"
    )


@pytest.mark.rare
@pytest.mark.fault("out of memory on one rank")
def test_memory_of_one_rank(training: Training) -> None:
    began = time.time()
    limits = {"resources": {"limits": {"memory": "2Gi"}}}
    training.install(TRAINING_STEPS, master=failing(training, "memory"), worker=limits)
    reason = end(training, began)
    assert reason.startswith("rank 1 on hvd-worker-1: out of memory: it used 2.0 of 2.0 GiB")
    assert "raise `worker.resources.limits.memory` to 4Gi" in reason


@pytest.mark.rare
@pytest.mark.fault("OUTPUT_PATH full")
def test_full_output(training: Training) -> None:
    began = time.time()
    small = {"name": "output", "emptyDir": {"medium": "Memory", "sizeLimit": "16Ki"}}
    mount = {"name": "output", "mountPath": "/output"}
    training.install(TRAINING_STEPS, volumes=[small], volumeMounts=[mount])
    reason = end(training, began)
    assert reason.startswith("rank 0 on hvd-worker-0: OSError: [Errno 28] No space left on device")


@pytest.mark.rare
@pytest.mark.fault("quota")
def test_quota(training: Training) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.memory": "1536Mi"}},
    }
    training.namespace.apply(quota)
    began = time.time()
    requests = {"resources": {"requests": {"memory": "1Gi"}}}
    training.install(
        TRAINING_STEPS, worker=requests, launch={"preload": [], "workersTimeoutSeconds": 8}
    )
    reason = end(training, began)
    assert "exceeded quota: small" in reason


@pytest.mark.rare
@pytest.mark.fault("Pod Security")
def test_pod_security(training: Training) -> None:
    began = time.time()
    launch = {"preload": [], "workersTimeoutSeconds": 8}
    training.install(TRAINING_STEPS, worker={"podSpec": {"hostPID": True}}, launch=launch)
    reason = end(training, began)
    assert 'violates PodSecurity "restricted:latest": host namespaces (hostPID=true)' in reason
