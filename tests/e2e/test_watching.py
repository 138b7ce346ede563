"""Metrics, Horovod's timeline and TensorBoard of a run on a real cluster."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path

from tests.e2e.cluster import Namespace, Values
from tests.e2e.volumes import on_node
from tests.waiting import wait_until

# Writes a metric and waits for the test: a FIFO opens when both of its ends are opened.
REPORT = """
import os
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    open("/output/metrics", "w").write("horovod_images_per_second 512.5\\n")
    open(os.environ["HVD_METRICS_DIR"] + "/0", "w").write("horovod_step 7\\n")
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


def test_metrics_have_the_stage_ranks_hosts_and_the_scripts_own(
    privileged: Namespace, node_folder: Path
) -> None:
    os.mkfifo(node_folder / "gate")
    os.chown(node_folder / "gate", 1000, 1000)
    metrics = {"enabled": True, "file": "/output/metrics"}
    privileged.install("hvd", values(node_folder, REPORT, metrics=metrics))
    wait_until((node_folder / "written").exists, 180, "the script writes its metric")
    (master,) = privileged.attempts("hvd")
    lines = fetch(master["status"]["podIP"], 9400, "/metrics").splitlines()
    assert 'horovod_stage{stage="Training"} 1' in lines
    assert "horovod_ranks 2" in lines
    assert "horovod_hosts_ready 1" in lines
    assert "horovod_images_per_second 512.5" in lines
    worker = privileged.get("pod", "hvd-worker-0")["status"]["podIP"]
    lines = fetch(worker, 9400, "/metrics").splitlines()
    assert "horovod_slots 2" in lines
    assert 'horovod_step{rank="0"} 7' in lines
    (node_folder / "gate").write_text("")
    privileged.assert_completes("hvd")


def test_timeline_is_written_and_tensorboard_only_reads(
    privileged: Namespace, node_folder: Path
) -> None:
    watched = {"tensorboard": {"enabled": True}, "horovod": {"timeline": True}}
    privileged.train("hvd", values(node_folder, TRAIN, **watched))
    events = json.loads((node_folder / "horovod-timeline.json").read_text())
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= {event.get("name") for event in events}
    privileged.kubectl(
        "wait", "deployment/hvd-tensorboard", "--for=condition=Available", "--timeout=180s"
    )
    address = privileged.get("service", "hvd-tensorboard")["spec"]["clusterIP"]
    # TensorBoard reads the folder some time after it has begun to answer.
    wait_until(lambda: json.loads(fetch(address, 6006, "/data/runs")), 60, "TensorBoard has read")
    assert json.loads(fetch(address, 6006, "/data/runs")) == ["logs"]
    program = "import os; print(os.statvfs('/output').f_flag & os.ST_RDONLY)"
    command = ["exec", "deployment/hvd-tensorboard", "--", "python3", "-c", program]
    assert privileged.kubectl(*command).strip() == "1", "TensorBoard only reads"
