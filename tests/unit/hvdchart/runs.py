"""Objects of a run as the API server has them, cut down to what is read, and calls of Helm."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hvdchart.run.follow import changes as watch
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.fixtures import answer_as
from tests.support.fakes.program import Call, StubProgram
from tests.unit.hvd_pods.runs import describe_run

JOB = "hvd-master-1a2b3c4d"
LABELS = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": "hvd"}
RUNNING = {"running": {"startedAt": "2026-01-01T10:00:05Z"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
STATEFUL_SET = {"metadata": {"name": "hvd-worker", "labels": LABELS}, "spec": {"replicas": 2}}
VALUES: dict[str, Any] = {"worker": {"number": 2, "slots": 4}, "master": {"args": ["a"]}}


def job(*conditions: tuple[str, str, str], name: str = JOB, **more: Any) -> dict[str, Any]:
    """A master's Job; conditions are (type, reason, message)."""
    created = more.get("created", "2026-01-01T10:00:00Z")
    return {
        "metadata": {"name": name, "creationTimestamp": created, "labels": LABELS},
        "spec": {
            "backoffLimit": 3,
            "suspend": more.get("suspend", False),
            "template": {"spec": {"containers": [{"name": "master", "env": master_env(more)}]}},
        },
        "status": {
            "failed": more.get("failed", 0),
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": message}
                for kind, reason, message in conditions
            ],
        },
    }


def master_env(more: dict[str, Any]) -> list[dict[str, str]]:
    """The master's variables: one group, or two, the second with two ranks on each worker."""
    first = {"number": 2, "maximum": 4, "minimum": more.get("minimum", 2), "slots": 1}
    groups = [
        {"statefulSet": "hvd-worker", "revision": "", **first},
        {"statefulSet": "hvd-worker-gpu", "number": 1, "maximum": 1, "slots": 2, "revision": ""},
    ]
    run = describe_run(
        groups=groups[: more.get("groups", 1)],
        mode=more.get("mode", "mpirun"),
        options=more.get("options", []),
        args=["python", "$$HOME/train.py"],
        failOnNaN=True,
    )
    return [{"name": "HVD_RUN", "value": run}]


def pod(name: str, component: str, state: dict[str, Any] | None = None, **more: Any) -> Any:
    """A pod; `state` is its container's."""
    labels = {**LABELS, "app.kubernetes.io/component": component}
    if component == "master":
        labels["batch.kubernetes.io/job-name"] = more.get("job", JOB)
    conditions = more.get("conditions", [])
    if more.get("ready"):
        conditions = [{"type": "Ready", "status": "True"}]
    owner = more.get("job", JOB) if component == "master" else "hvd-worker"
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "ownerReferences": [{"kind": "X", "name": owner}],
        },
        "spec": {"nodeName": more.get("node", "n1")},
        "status": {
            "phase": more.get("phase", "Running" if state and "running" in state else "Pending"),
            "conditions": conditions,
            **(
                {"reason": more["reason"], "message": "node was low on memory"}
                if "reason" in more
                else {}
            ),
            "containerStatuses": [
                {
                    "name": component,
                    "image": "team/train:1",
                    "state": state,
                    "lastState": more.get("last", {}),
                    "restartCount": more.get("restarts", 0),
                }
            ]
            if state
            else [],
        },
    }


def event(about: str, kind: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": more.get("name", f"{about}.{reason}"),
            "creationTimestamp": "2026-01-01T10:00:00Z",
        },
        "involvedObject": {"kind": kind, "name": about, "uid": more.get("uid", "")},
        "type": more.get("type", "Warning"),
        "reason": reason,
        "message": message,
        "lastTimestamp": more.get("at", "2026-01-01T10:00:01Z"),
    }


def terminated(
    code: int, message: str = "", reason: str = "Error", at: str = "10:01:00"
) -> dict[str, Any]:
    """The state of a container that has ended."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "finishedAt": f"2026-01-01T{at}Z",
        }
    }


def of_release(name: str, item: dict[str, Any]) -> dict[str, Any]:
    labels = {**item["metadata"]["labels"], "app.kubernetes.io/instance": name}
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


MASTER = pod(f"{JOB}-x", "master", RUNNING, ready=True)
WORKERS = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in (0, 1)]
DONE = job(("Complete", "", ""))
FAILED = job(("Failed", "BackoffLimitExceeded", "limit"), failed=4)
ENDED_MASTER = pod(f"{JOB}-x", "master", terminated(0), phase="Succeeded")
FAILED_MASTER = pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed")
# Of two workers with a rank each. Helm installs it as `hvd`.
SPEC = {
    "apiVersion": "hvdchart/v1",
    "name": "hvd",
    "nodes": [{"name": "n", "count": 2, "coresPerSocket": 4, "memory": "8Gi"}],
    "image": {"repository": "a"},
    "train": {"command": ["train"]},
}


def play(cluster: FakeCluster, run: Any, master: Any) -> FakeCluster:
    """Let the cluster have a run: its Job, its workers, its master and their logs."""
    cluster.put("jobs", run)
    cluster.put("statefulsets", STATEFUL_SET)
    cluster.put("pods", *WORKERS, master)
    cluster.log(f"{JOB}-x", "first", "last", end=True)
    for worker in WORKERS:
        cluster.log(worker["metadata"]["name"])
    return cluster


def upgrades(helm: StubProgram) -> list[Call]:
    return [call for call in helm.calls if call.arguments[0] == "upgrade"]


def installed_values(helm: StubProgram) -> Any:
    """The values of the last upgrade; None before the first."""
    calls = upgrades(helm)
    return json.loads(calls[-1].input) if calls else None


def tell(cluster: FakeCluster, progress: object, of: str = JOB) -> None:
    """Let the master of a Job write the progress into the record."""
    data = {"job": of, "state": "Running", "progress": json.dumps(progress)}
    cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do something beside the block, and wait for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def spec(tmp_path: Path, helm: StubProgram, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec's file. Helm installs it as `hvd`."""
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    path = tmp_path / "run.spec.yaml"
    path.write_text(json.dumps(SPEC))
    answer_as(helm, "hvd")
    return path


@pytest.fixture
def running(fake_cluster: FakeCluster) -> FakeCluster:
    return play(fake_cluster, job(), MASTER)


@pytest.fixture
def finished(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that has finished; its workers' logs go on."""
    return play(fake_cluster, DONE, ENDED_MASTER)


@pytest.fixture
def kubectl(programs: Path) -> StubProgram:
    """A kubectl that does nothing."""
    return StubProgram(programs, "kubectl")


@pytest.fixture
def docker(programs: Path) -> StubProgram:
    """A Docker that builds, and has no image yet."""
    stub = StubProgram(programs, "docker")
    stub.answer("inspect", code=1)
    stub.answer("build", "STEP 1/1: FROM a\nother\nSTEP 1/1: FROM a\n")
    return stub
