"""A run as the chart describes it to its master, with the changes of a test."""

from __future__ import annotations

import json
from typing import Any

from hvd_pods.common import run
from tests.support.release_keys import MASTER_NAME, WORKER_NAME


def describe_run(**changes: Any) -> str:
    """Describe a run of two groups to the master as the chart does, in HVD_RUN."""
    document: dict[str, Any] = {
        "id": "run-1",
        "settingsHash": "settings-1",
        "service": "hvd",
        "masterSelector": "app.kubernetes.io/instance=hvd",
        "workerSelector": "app.kubernetes.io/instance=hvd",
        "groups": [
            {"statefulSet": "hvd-cpu", "number": 2, "maximum": 2, "slots": 2, "revision": "r1"},
            {"statefulSet": "hvd-gpu", "number": 1, "maximum": 1, "slots": 4, "revision": "r2"},
        ],
        "args": ["python", "train.py"],
        "mode": "mpirun",
        "options": [],
        "workersTimeoutSeconds": 60,
        "stallTimeoutSeconds": 0,
        "stopsFollowSteps": False,
        "failOnNaN": False,
        "allowIdleWorkers": False,
        "gracePeriodSeconds": 30,
        "interface": "",
        "agentPort": 2222,
        "masterName": MASTER_NAME,
        "workerName": WORKER_NAME,
        "cleanup": "OnSuccess",
        "record": "hvd-run",
        "api": True,
        "binding": {"to": "none", "coresPerRank": 0, "ranksPerSocket": 0},
        "transport": "",
        "code": "",
        "codeSha256": "",
        "codeConfigMap": "",
        "requirements": False,
        "lostAfterSeconds": 0,
        "lossFollowsState": False,
        "isHorovodrunLine": False,
        "shrinkAfterSeconds": 0,
        "results": {},
        "retries": 0,
    }
    document.update(changes)
    # The defaults of a group are those of a group that neither shrinks nor stages data.
    document["groups"] = [
        {"minimum": group["number"], "staged": "", **group} for group in document["groups"]
    ]
    return json.dumps(document)


def make_run(**changes: Any) -> run.Run:
    """Return a run of two groups."""
    return run.parse_run(describe_run(**changes))
