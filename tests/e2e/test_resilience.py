"""Runs that lose pods, with real training."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Namespace, Values
from tests.e2e.volumes import claimed_folder
from tests.waiting import wait_until

# More than the run can train before it is upgraded.
EPOCHS = 10_000


@pytest.fixture
def output(namespace: Namespace) -> Iterator[Path]:
    """A directory of this machine, with a claim `output` that all pods can mount."""
    folder = Path(tempfile.mkdtemp(prefix="hvd-output-"))
    folder.chmod(0o777)
    with claimed_folder(namespace, "output", folder):
        yield folder
    shutil.rmtree(folder)


def epochs_saved(output: Path) -> int:
    """Epochs done in the newest checkpoint, 0 when there is none."""
    return max(
        (int(file.stem.partition("-")[2]) for file in output.glob("ckpt-*.index")), default=0
    )


def last_attempt(namespace: Namespace) -> str:
    """Name of the newest of the master's pods; empty while a deleted one is not replaced yet."""
    attempts = namespace.attempts("hvd")
    if not attempts:
        return ""
    newest = max(attempts, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    return str(newest["metadata"]["name"])


def test_lost_pods_and_another_number_of_workers_cost_at_most_an_epoch(
    namespace: Namespace, output: Path
) -> None:
    def values(workers: int, epochs: int) -> Values:
        return {
            "worker": {"number": workers, "env": [{"name": "OUTPUT_PATH", "value": "/output"}]},
            "master": {"args": ["python", "/examples/digits.py", "--epochs", str(epochs)]},
            "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": "output"}}],
            "volumeMounts": [{"name": "output", "mountPath": "/output"}],
        }

    namespace.install("hvd", values(2, EPOCHS))
    wait_until(lambda: epochs_saved(output) >= 3, 240, "three epochs")
    first = last_attempt(namespace)
    namespace.kubectl("delete", "pod", "hvd-worker-1", "--grace-period=0", "--force")

    again = "the next attempt begins"
    wait_until(lambda: again in namespace.log("hvd"), 60, "a second attempt")
    at_loss = epochs_saved(output)
    assert last_attempt(namespace) == first, "a lost worker cost the master"
    wait_until(lambda: epochs_saved(output) >= at_loss + 3, 120, "three more epochs")
    namespace.kubectl("delete", "pod", first, "--grace-period=1")

    wait_until(lambda: last_attempt(namespace) not in ("", first), 60, "a second master")
    wait_until(lambda: epochs_saved(output) >= at_loss + 6, 120, "three more epochs")
    last = epochs_saved(output) + 20
    namespace.upgrade("hvd", values(1, last))
    assert namespace.wait_for_end("hvd") == "Complete", namespace.describe("hvd")
    log = namespace.kubectl("logs", last_attempt(namespace))
    result = json.loads(log[log.index("RESULT ") :].splitlines()[0].partition(" ")[2])
    assert (result["epochs"], result["ranks"]) == (last, 1)
    assert at_loss + 6 <= result["resumed_after_epoch"] < last
    assert result["disagreeing_ranks"] == []


# Ends once it has been grown to three ranks, has lost one, and has got it back.
ELASTIC = """
import sys, time
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(4,))])
(weights,) = model.trainable_variables
weights.assign(tf.zeros_like(weights))
optimizer = tf.keras.optimizers.SGD()
optimizer.build(model.trainable_variables)
state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0, sizes=[])

@hvd.elastic.run
def train(state):
    state.sizes = state.sizes + [hvd.size()]
    begun = state.step
    while not (state.sizes.count(3) >= 2 and state.step > begun + 20):
        weights.assign_add(hvd.allreduce(tf.ones_like(weights), name="ones"))
        state.step += 1
        if state.step % 5 == 0:
            if hvd.rank() == 0:
                sys.stdout.write(f"STEP {state.step} SIZES {state.sizes}\\n")
                sys.stdout.flush()
            state.commit()
        time.sleep(0.05)

train(state)
assert (weights.numpy() == state.step).all(), "a step was lost or done twice"
if hvd.rank() == 0:
    sys.stdout.write(f"DONE {state.sizes}\\n")
"""


def test_elastic_run_grows_and_survives_a_lost_worker(namespace: Namespace) -> None:
    values: Values = {
        "worker": {"number": 2},
        "master": {"args": ["python", "-c", ELASTIC], "backoffLimit": 0},
        "launch": {"mode": "elastic", "elastic": {"minRanks": 1, "maxRanks": 3}},
    }
    namespace.install("hvd", values)
    wait_for_line(namespace, "SIZES [2]")
    namespace.kubectl("scale", "statefulset", "hvd-worker", "--replicas=3")
    wait_for_line(namespace, "SIZES [2, 3]")
    namespace.kubectl("delete", "pod", "hvd-worker-2", "--grace-period=0", "--force")
    assert namespace.wait_for_end("hvd") == "Complete", namespace.describe("hvd")
    assert len(namespace.attempts("hvd")) == 1, "a lost worker cost the run"
    assert "DONE [2, 3, " in namespace.log("hvd")


def wait_for_line(namespace: Namespace, text: str) -> None:
    """Follow the master's log until a line contains `text`."""
    pod = namespace.client.wait_for_job_start(namespace.job("hvd"), 60)
    with subprocess.Popen(
        ["timeout", "240", *namespace.client.command("logs", "--follow", pod)],
        env=namespace.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as log:
        logged = any(text in line for line in log.stdout or ())
        log.terminate()
    assert logged, f"{text!r} is not in the log:\n{namespace.log('hvd')}"
