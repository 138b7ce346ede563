"""Elastic runs that gain and lose a worker."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import Namespace, Values

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
    namespace.wait_for_line("SIZES [2]")
    namespace.kubectl("scale", "statefulset", "hvd-worker", "--replicas=3")
    namespace.wait_for_line("SIZES [2, 3]")
    namespace.kubectl("delete", "pod", "hvd-worker-2", "--grace-period=0", "--force")
    namespace.assert_completes("hvd")
    assert len(namespace.attempts("hvd")) == 1, "a lost worker cost the run"
    assert "DONE [2, 3, " in namespace.log("hvd")


# What horovodrun of a bare Horovod would run.
SENDS_CODE = """
import base64, http.client, os, pickle, sys
class Code:
    def __reduce__(self):
        return os.write, (1, b"CODE RAN\\n")
address, port = (os.environ[f"HOROVOD_GLOO_RENDEZVOUS_{name}"] for name in ("ADDR", "PORT"))
connection = http.client.HTTPConnection(address, int(port))
path = f"/worker_addresses/{os.environ['HOROVOD_HOSTNAME']}:0"
connection.request("PUT", path, base64.b64encode(pickle.dumps(Code())))
try:
    sys.exit(f"answered {connection.getresponse().status}")
except http.client.RemoteDisconnected:
    pass
"""


def test_training_code_of_an_elastic_run_cannot_run_code_in_the_master(
    namespace: Namespace,
) -> None:
    values: Values = {
        "worker": {"number": 1},
        "master": {"args": ["python3", "-c", SENDS_CODE], "backoffLimit": 0},
        "launch": {"mode": "elastic"},
    }
    log = namespace.train("hvd", values)
    assert "posix.write is no message of Horovod" in log
    assert "CODE RAN" not in log.splitlines()


@pytest.mark.rare
def test_elastic_run_waits_for_a_lost_worker_that_it_needs(namespace: Namespace) -> None:
    values: Values = {
        "worker": {"number": 2},
        "master": {
            "args": ["python", "-c", ELASTIC.replace("count(3)", "count(2)")],
            "backoffLimit": 0,
        },
        "launch": {"mode": "elastic", "elastic": {"minRanks": 2}},
    }
    namespace.install("hvd", values)
    namespace.wait_for_line("SIZES [2]")
    namespace.kubectl("delete", "pod", "hvd-worker-1", "--wait=false")
    namespace.assert_completes("hvd")
    assert len(namespace.attempts("hvd")) == 1, "a lost worker cost the run"
    # The host that comes back may be told in a reset of its own.
    assert any(f"DONE {sizes}\n" in namespace.log("hvd") for sizes in ([2, 2], [2, 2, 2]))
