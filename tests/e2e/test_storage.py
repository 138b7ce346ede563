"""Staging on a real node that two workers share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from tests.support.namespace import Namespace, Values

# Leaves a line for each time that it runs, and waits until the test opens the FIFO.
FETCH = "date >>../../fetches; cat ../../gate; echo content >part-0; sha256sum part-0 >SHA256SUMS"
SHOW = "import sys; sys.stdout.write('SEEN ' + open('/data/set/part-0').read())"


def values(folder: Path) -> Values:
    """Two workers that read the staged data of their node."""
    return {
        "worker": {"number": 2},
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


WAITING = "another pod is filling /data/set: waiting for it"


@pytest.fixture(scope="class")
def filling(privileged: Namespace, node_folder: Path) -> Namespace:
    """One of two workers fetches the data, and the other one waits for it."""
    gate = node_folder / "gate"
    os.mkfifo(gate)
    os.chown(gate, 1000, 1000)
    privileged.install("hvd", values(node_folder))
    waits = "a worker waits for the other"
    wait_until(lambda: WAITING in staging_logs(privileged), 180, waits, PROGRAM_PAUSE)
    return privileged


@pytest.fixture(scope="class")
def filled(filling: Namespace, node_folder: Path) -> Namespace:
    """The data are there, and the run has completed."""
    (node_folder / "gate").write_text("")
    filling.assert_completes("hvd")
    return filling


class TestStagingOnANode:
    def test_one_worker_waits_for_the_other(self, filling: Namespace) -> None:
        assert WAITING in staging_logs(filling)

    def test_both_workers_read_the_data(self, filled: Namespace) -> None:
        assert filled.log("hvd").count("SEEN content") == 2

    def test_data_are_checked_with_the_publishers_sums(self, filled: Namespace) -> None:
        assert "checking the publisher's SHA256SUMS" in staging_logs(filled)

    def test_data_are_fetched_once(self, filled: Namespace, node_folder: Path) -> None:
        assert len((node_folder / "fetches").read_text().splitlines()) == 1


def test_failed_staging_is_reported_in_the_masters_log(
    privileged: Namespace, node_folder: Path
) -> None:
    failing = values(node_folder)
    failing["staging"] = {"path": "/data/set", "command": ["sh", "-c", "exit 9"]}
    privileged.install("hvd", failing)
    privileged.wait_for_line("staging: the command failed with exit code 9")
