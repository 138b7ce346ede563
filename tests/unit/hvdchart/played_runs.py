"""A spec, its run as a test lets the cluster have it, and what Helm was asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import Call, StubProgram
from tests.unit.hvdchart.objects import JOB, STATEFUL_SET, WORKERS

# Of two workers with a rank each. Helm installs it as `hvd`.
SPEC = {
    "apiVersion": "hvdchart/v1",
    "name": "hvd",
    "nodes": [{"name": "n", "count": 2, "coresPerSocket": 4, "memory": "8Gi"}],
    "image": {"repository": "a"},
    "train": {"command": ["train"]},
}


def play_run(cluster: FakeCluster, run: Any, master: Any) -> FakeCluster:
    """Let the cluster have a run: its Job, its workers, its master and their logs."""
    cluster.put("jobs", run)
    cluster.put("statefulsets", STATEFUL_SET)
    cluster.put("pods", *WORKERS, master)
    cluster.log(f"{JOB}-x", "first", "last", end=True)
    for worker in WORKERS:
        cluster.log(worker["metadata"]["name"])
    return cluster


def answer_as(stub: StubProgram, release: str) -> None:
    """Let a Helm install this release as revision 2."""
    info = {"status": "deployed", "last_deployed": "2026-01-01T10:00:00Z", "description": "done"}
    installed = {"name": release, "namespace": "team", "version": 2, "info": info, "manifest": ""}
    stub.answer("upgrade", json.dumps(installed))


def list_upgrades(helm: StubProgram) -> list[Call]:
    return [call for call in helm.calls if call.arguments[0] == "upgrade"]


def installed_values(helm: StubProgram) -> Any:
    """The values of the last upgrade; None before the first."""
    calls = list_upgrades(helm)
    return json.loads(calls[-1].input) if calls else None


def report_progress(cluster: FakeCluster, progress: object, of: str = JOB) -> None:
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
