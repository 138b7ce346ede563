"""Staging on a real node that two workers share."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.cluster import Namespace, Values
from tests.e2e.test_resilience import wait_for_line
from tests.waiting import PROGRAM_PAUSE, wait_until

# Leaves a line for each time that it runs, and waits until the test opens the FIFO.
FETCH = "date >>../../fetches; cat ../../gate; echo content >part-0; sha256sum part-0 >SHA256SUMS"
SHOW = "import sys; sys.stdout.write('SEEN ' + open('/data/set/part-0').read())"


def values(folder: Path, **worker: object) -> Values:
    """Two workers that read the staged data of their node."""
    return {
        "worker": {"number": 2, **worker},
        "master": {"args": ["python3", "-c", SHOW], "backoffLimit": 0},
        "volumes": [{"name": "data", "hostPath": {"path": str(folder)}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        "staging": {"path": "/data/set", "command": ["sh", "-c", FETCH]},
        "cleanup": "Never",
    }


def staging_logs(namespace: Namespace) -> str:
    """The logs of the workers' staging containers; empty while a container has none."""
    pods = ("hvd-worker-0", "hvd-worker-1")
    commands = (namespace.client.command("logs", pod, "--container", "staging") for pod in pods)
    return "".join(namespace.call(*command).stdout for command in commands)


def test_two_workers_of_a_node_stage_its_data_once(
    privileged: Namespace, node_folder: Path
) -> None:
    gate = node_folder / "gate"
    os.mkfifo(gate)
    os.chown(gate, 1000, 1000)
    privileged.install("hvd", values(node_folder))
    waiting = "another pod is filling /data/set: waiting for it"
    filled_once = "a worker waits for the other"
    wait_until(lambda: waiting in staging_logs(privileged), 180, filled_once, PROGRAM_PAUSE)
    gate.write_text("")
    privileged.assert_completes("hvd")
    assert privileged.log("hvd").count("SEEN content") == 2
    logs = staging_logs(privileged)
    assert waiting in logs
    assert "checking the publisher's SHA256SUMS" in logs

    # New workers use the same data.
    changed = {"name": "CHANGED", "value": "yes"}
    privileged.upgrade("hvd", values(node_folder, env=[changed]))
    privileged.assert_completes("hvd")
    assert staging_logs(privileged).count("/data/set is filled: 2 files") == 2
    assert len((node_folder / "fetches").read_text().splitlines()) == 1


def test_failed_staging_is_reported_in_the_masters_log(
    privileged: Namespace, node_folder: Path
) -> None:
    failing = values(node_folder)
    failing["staging"] = {"path": "/data/set", "command": ["sh", "-c", "exit 9"]}
    privileged.install("hvd", failing)
    wait_for_line(privileged, "staging: the command failed with exit code 9")
