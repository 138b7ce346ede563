"""Metrics, Horovod's timeline and TensorBoard of a run on a real cluster."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from tests.support.namespace import Namespace, Values
from tests.support.volumes import on_node

# Writes a metric and waits for the test: a FIFO opens when both of its ends are opened.
REPORT = """
import os
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    open(os.environ["HVD_METRICS_DIR"] + "/0", "w").write("hvdchart_step 7\\n")
    open("/output/written", "w").close()
    open("/output/gate").close()
"""
TRAIN = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
hvd.allreduce(tf.constant(1.0), name="watched")
if hvd.rank() == 0:
    with tf.summary.create_file_writer("/output/logs").as_default():
        tf.summary.scalar("loss", 0.5, step=1)
hvd.shutdown()
"""


def values(folder: Path, script: str, **more: object) -> Values:
    """A run of two ranks whose output is a directory of the node."""
    return {
        "worker": {"number": 1, "slots": 2, "env": [{"name": "OUTPUT_PATH", "value": "/output"}]},
        "master": {"args": ["python3", "-c", script], "backoffLimit": 0},
        **on_node(folder, "output"),
        **more,
    }


def fetch(address: str, port: int, path: str) -> str:
    """An HTTP GET; the machine reaches pods and Services of the local cluster."""
    with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="class")
def waiting(privileged: Namespace, node_folder: Path) -> Namespace:
    """The script has written its metrics, and waits."""
    os.mkfifo(node_folder / "gate")
    os.chown(node_folder / "gate", 1000, 1000)
    privileged.install("hvd", values(node_folder, REPORT, metrics={"enabled": True}))
    wait_until((node_folder / "written").exists, 180, "the script writes its metric")
    return privileged


class TestMetrics:
    def test_master_has_the_stage_ranks_and_workers(self, waiting: Namespace) -> None:
        lines = metrics_of_the_master(waiting)
        assert 'hvdchart_stage{stage="Training"} 1' in lines
        assert "hvdchart_ranks 2" in lines
        assert "hvdchart_workers_ready 1" in lines

    def test_worker_has_its_slots_and_the_metrics_of_its_ranks(self, waiting: Namespace) -> None:
        address = waiting.get("pod", "hvd-worker-0")["status"]["podIP"]
        lines = fetch(address, 9400, "/metrics").splitlines()
        assert "hvdchart_slots 2" in lines
        assert 'hvdchart_step{rank="0"} 7' in lines

    def test_run_completes(self, waiting: Namespace, node_folder: Path) -> None:
        (node_folder / "gate").write_text("")
        waiting.assert_completes("hvd")


def metrics_of_the_master(namespace: Namespace) -> list[str]:
    (master,) = namespace.master_pods("hvd")
    return fetch(master["status"]["podIP"], 9400, "/metrics").splitlines()


@pytest.fixture(scope="class")
def watched(privileged: Namespace, node_folder: Path) -> Namespace:
    """A run with a timeline and TensorBoard has completed."""
    values_of_both = {"tensorboard": {"enabled": True}, "horovod": {"timeline": True}}
    privileged.train("hvd", values(node_folder, TRAIN, **values_of_both))
    return privileged


@pytest.fixture(scope="class")
def board(watched: Namespace) -> Namespace:
    """TensorBoard answers."""
    available = ("deployment/hvd-tensorboard", "--for=condition=Available", "--timeout=180s")
    watched.kubectl("wait", *available)
    return watched


class TestTimelineAndTensorBoard:
    def test_timeline_has_the_allreduce(self, watched: Namespace, node_folder: Path) -> None:
        events = json.loads((node_folder / "horovod-timeline.json").read_text())
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= {event.get("name") for event in events}

    def test_tensorboard_shows_the_logs(self, board: Namespace) -> None:
        address = board.get("service", "hvd-tensorboard")["spec"]["clusterIP"]

        def runs() -> Any:
            return json.loads(fetch(address, 6006, "/data/runs"))

        # TensorBoard reads the folder some time after it has begun to answer.
        wait_until(runs, 60, "TensorBoard has read")
        assert runs() == ["logs"]
