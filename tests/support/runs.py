"""A run as the chart describes it to its master, with the changes of a test."""

from __future__ import annotations

import json
from typing import Any

from hvd_pods.shared import run
from tests.support.release_keys import MASTER_NAME, WORKER_NAME


def describe_run(**changes: Any) -> str:
    """Describe a run of two groups to the master as the chart does, in HVD_RUN."""
    document: dict[str, Any] = {
        "id": "run-1",
        "settings_hash": "settings-1",
        "service": "hvd",
        "master_selector": "app.kubernetes.io/instance=hvd",
        "worker_selector": "app.kubernetes.io/instance=hvd",
        "groups": [
            {"stateful_set": "hvd-cpu", "number": 2, "maximum": 2, "slots": 2, "revision": "r1"},
            {"stateful_set": "hvd-gpu", "number": 1, "maximum": 1, "slots": 4, "revision": "r2"},
        ],
        "args": ["python", "train.py"],
        "mode": "mpirun",
        "options": [],
        "workers_timeout_seconds": 60,
        "stall_timeout_seconds": 0,
        "is_stall_timeout_default": False,
        "fail_on_nan": False,
        "allow_idle_workers": False,
        "grace_seconds": 30,
        "interface": "",
        "agent_port": 2222,
        "master_name": MASTER_NAME,
        "worker_name": WORKER_NAME,
        "cleanup": "OnSuccess",
        "record": "hvd-run",
        "has_api_access": True,
        "binding": {"to": "none", "cores_per_rank": 0, "ranks_per_socket": 0},
        "transport": "",
        "code": {"version": "", "sha256": "", "config_map": ""},
        "installs_requirements": False,
        "lost_after_seconds": 0,
        "is_lost_after_default": False,
        "shrink_after_seconds": 0,
        "backoff_limit": 0,
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
