"""Ranks of Horovod that the master starts itself."""

from __future__ import annotations

from tests.support.namespace import Namespace, Values

# The first attempt loses a rank in the middle of the training.
HOROVOD = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
for step in range(20):
    total = hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum, name="step")
    if step == 10 and hvd.rank() == 2 and os.environ["HVD_ATTEMPT"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
places = hvd.allgather_object((hvd.local_rank(), hvd.local_size(), hvd.cross_rank()))
assert os.environ["HOROVOD_CYCLE_TIME"] == "2.5"
sys.stdout.write(f"SUM {float(total)} OF {hvd.size()} {places}\\n")
"""


def test_ranks_of_horovod_recover_on_warm_ranks(namespace: Namespace) -> None:
    values: Values = {
        "workerGroups": [{"name": "a", "number": 1}, {"name": "b", "number": 1, "slots": 2}],
        "master": {"args": ["python3", "-c", HOROVOD], "backoffLimit": 1},
        "horovod": {"cycleTimeMs": 2.5},
        "launch": {"mode": "direct", "preload": ["tensorflow", "horovod.tensorflow"]},
    }
    namespace.install("hvd", values)
    assert namespace.wait_for_end("hvd") == "Complete", namespace.describe("hvd")
    log = namespace.log("hvd")
    assert "[hvd] error: rank 2 on hvd-b-0: ended by SIGKILL" in log
    assert "start cold" not in log
    assert log.count("SUM 6.0 OF 3 [(0, 1, 0), (0, 2, 1), (1, 2, 0)]\n") == 3
