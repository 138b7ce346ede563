"""Trainings that lose a process or a pod go on where they were."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from tests.faults.node import cut_off
from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training


@pytest.mark.fault("rank killed")
def test_killed_rank(training: Training) -> None:
    with training.disturbed():
        training.run_to(1, TRAINING_STEPS)
        # To find it takes a while.
        rank = training.rank(1)
        training.wait_for_step(FAULT_STEP)
        fault = time.time()
        rank.kill()
    training.finish(fault)
    assert {line["fork"] for line in training.lines("ranks")} == {True}
    assert len(training.namespace.master_pods("hvd")) == 1, "a killed rank cost the master"


@pytest.mark.fault("worker deleted")
def test_deleted_worker(training: Training) -> None:
    with training.disturbed():
        fault = training.run_to(FAULT_STEP, TRAINING_STEPS)
        training.namespace.kubectl("delete", "pod", "hvd-worker-1", "--grace-period=0", "--force")
    training.finish(fault)
    assert len(training.namespace.master_pods("hvd")) == 1, "a lost worker cost the master"


@pytest.mark.rare
@pytest.mark.fault("worker deleted, with a spare")
def test_deleted_worker_with_a_spare(training: Training) -> None:
    training.run_to(FAULT_STEP, TRAINING_STEPS, worker={"spares": 1})
    lost = training.newest(1)["host"]
    fault = time.time()
    training.namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    training.finish(fault)
    assert lost not in {training.newest(rank)["host"] for rank in (0, 1)}


@pytest.mark.rare
@pytest.mark.fault("network of a worker cut, with a spare")
def test_cut_worker(training: Training) -> None:
    training.run_to(FAULT_STEP, TRAINING_STEPS, worker={"spares": 1})
    lost = training.host(1)
    fault = time.time()
    with cut_off(lost):
        training.finish(fault)


@pytest.mark.rare
@pytest.mark.fault("network of a worker cut for a while")
def test_worker_cut_for_a_while(training: Training) -> None:
    fault = training.run_to(FAULT_STEP, TRAINING_STEPS)
    with cut_off(training.host(1)):
        wait_until(
            lambda: training.namespace.master_events("WorkerLost"), 180, "the master misses it"
        )
    # Its ranks of that attempt may still wait for the others.
    training.finish(fault)
    (failed,) = training.namespace.master_events("Failed")
    assert failed["message"].startswith("lost hvd-worker-1: ")


@pytest.mark.rare
@pytest.mark.fault("worker replaced by one with another address, behind a cut network")
def test_connections_to_a_replaced_worker(training: Training) -> None:
    """Those before learn nothing of that: no packet of the deleted worker comes through."""
    training.run_to(FAULT_STEP, TRAINING_STEPS)
    lost = training.worker(1)
    with cut_off(lost), training.disturbed():
        fault = time.time()
        training.namespace.kubectl("delete", "pod", "hvd-worker-1", "--grace-period=0", "--force")
    new = training.worker(1)
    assert new["status"]["podIP"] != lost["status"]["podIP"]
    # The new worker has got the code, and its rank trains, before steps are done again.
    assert "agent connection from " in training.namespace.kubectl("logs", new["metadata"]["name"])
    training.finish(fault)


@pytest.mark.rare
@pytest.mark.fault("the agent killed")
def test_killed_agent(training: Training) -> None:
    """The container ends with it, and so do its ranks."""
    fault = training.run_to(FAULT_STEP, TRAINING_STEPS)
    # The supervisors of the agent are forks of it, with its command line.
    main = training.process(1, command="worker/main.py")
    (agent,) = [
        process for process in main.children() if "worker/agent.py" in " ".join(process.cmdline())
    ]
    # The next container has the same volume, and gives its processes the same numbers: a daemon of
    # Open MPI must not find the folder of one with its own.
    temporary = Path(f"/proc/{main.pid}/root/tmp")
    (left,) = temporary.glob("prted.*")
    name, _, user = left.name.rsplit(".", 2)
    for number in range(2, 100):
        folder = temporary / f"{name}.{number}.{user}"
        folder.mkdir(exist_ok=True)
        os.chown(folder, int(user), int(user))
    agent.kill()
    training.finish(fault)
    assert len(training.namespace.master_events("Failed")) == 1


@pytest.mark.rare
@pytest.mark.fault("warm process killed, then a rank")
def test_killed_warm_process(training: Training) -> None:
    training.run_to(FAULT_STEP, TRAINING_STEPS)
    warm = training.process(1, command="warm/server.py")
    # It watches the one that imports, which is its child.
    (importing,) = warm.children()
    importing.kill()
    reached = training.steps()[-1].step
    training.wait_for_step(reached + 10)
    assert len(training.starts()) == 1, "the ranks ended with it"
    fault = time.time()
    training.rank(1).kill()
    training.finish(fault)


@pytest.mark.rare
@pytest.mark.fault("rank 0 killed while it writes a checkpoint")
def test_killed_in_a_checkpoint(training: Training) -> None:
    training.run_to(FAULT_STEP, TRAINING_STEPS)
    (training.folder / "hold").touch()
    wait_until((training.folder / "writing").exists, 180, "rank 0 writes a checkpoint")
    fault = time.time()
    training.rank(0).kill()
    training.finish(fault)
