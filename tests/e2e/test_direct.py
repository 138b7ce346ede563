"""Ranks that the master starts itself; and what every launcher's ranks know of one another."""

from __future__ import annotations

import re

import pytest

from tests.support.namespace import Namespace, Values

# The ranks meet where the variables say. In the first attempt, one of them is killed after that.
MEET = """
import os, signal, socket, sys, time
numbers = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK"
own = [int(os.environ[name]) for name in numbers.split()]
assert own[:2] == [int(os.environ[name]) for name in ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES")]
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert os.environ["JAX_COORDINATOR_ADDRESS"] == f"{place[0]}:{place[1] + 1}"
attempt = int(os.environ["TORCHELASTIC_RUN_ID"])
if own[0] == 0:
    places = {0: str(own)}
    listener = socket.create_server(("", place[1]))
    others = [listener.accept()[0] for _ in range(own[1] - 1)]
    for other in others:
        rank, _, text = other.recv(4096).decode().partition(" ")
        places[int(rank)] = text
    for rank in sorted(places):
        sys.stdout.write(f"PLACE {attempt} {place[1]} {rank} {places[rank]}\\n")
    sys.stdout.flush()
    for other in others:
        other.sendall(b"all are here")
else:
    for _ in range(300):
        try:
            connection = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    connection.sendall(f"{own[0]} {own}".encode())
    assert connection.recv(100) == b"all are here"
    if attempt == 1 and own[0] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60 if attempt == 1 else 0)
"""
# Ranks, ranks on the host and hosts, each with the rank's own number before.
PLACES = {"0": "[0, 3, 0, 1, 0, 0]", "1": "[1, 3, 0, 2, 1, 1]", "2": "[2, 3, 1, 2, 1, 1]"}


@pytest.mark.parametrize("mode", ["direct", "mpirun"])
def test_ranks_of_any_program_meet_again_after_one_was_killed(
    namespace: Namespace, mode: str
) -> None:
    values: Values = {
        "workerGroups": [{"name": "a", "number": 1}, {"name": "b", "number": 1, "slots": 2}],
        "master": {"args": ["python3", "-c", MEET], "backoffLimit": 1},
        "launch": {"mode": mode},
    }
    namespace.install("hvd", values)
    assert namespace.wait_for_end("hvd") == "Complete", namespace.describe("hvd")
    log = namespace.log("hvd")
    assert "[hvd] error: rank 2 on hvd-b-0: ended by SIGKILL" in log
    places = re.findall(r"PLACE (\d) (\d+) (\d) (.*)$", log, re.M)
    ports = {attempt: port for attempt, port, _, _ in places}
    assert ports.keys() == {"1", "2"}
    assert ports["1"] != ports["2"], "the next attempt met what the first one has left"
    for attempt in "12":
        assert {rank: text for one, _, rank, text in places if one == attempt} == PLACES


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


def test_line_of_horovodrun_trains_and_recovers_on_warm_ranks_without_it(
    namespace: Namespace,
) -> None:
    line = ["horovodrun", "-np", "3", "--gloo", "--cycle-time-ms", "2.5"]
    values: Values = {
        "workerGroups": [{"name": "a", "number": 1}, {"name": "b", "number": 1, "slots": 2}],
        "master": {"args": [*line, "python3", "-c", HOROVOD], "backoffLimit": 1},
        "launch": {"preload": ["tensorflow", "horovod.tensorflow"]},
    }
    namespace.install("hvd", values)
    assert namespace.wait_for_end("hvd") == "Complete", namespace.describe("hvd")
    log = namespace.log("hvd")
    assert "[hvd] error: rank 2 on hvd-b-0: ended by SIGKILL" in log
    assert "start cold" not in log
    assert log.count("SUM 6.0 OF 3 [(0, 1, 0), (0, 2, 1), (1, 2, 0)]\n") == 3
