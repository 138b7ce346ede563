"""Ends that a person plans, on a real cluster: no step is lost that `keep` holds in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from devtools.toolchain.tools import tool
from tests.e2e.command import hvdchart, namespace_options
from tests.e2e.quick_runs import quick_values
from tests.support.namespace import Namespace, Values
from tests.support.volumes import claimed_folder

# Says where it begins, makes a step in each rank's memory, and continues until it is ended.
TRAIN = """
import os, time
import keep
os.environ.pop("WORLD_SIZE", None)  # Each rank is alone.
state = keep.State(losses=[])
print("BEGINS", state.restore(), flush=True)
state.commit(state.step + 100)
print("COMMITTED", flush=True)
time.sleep(600)
"""


def planned(workers: int = 1) -> Values:
    """A run of one rank in each worker, with a volume for its checkpoints."""
    return quick_values(
        worker={
            "number": workers,
            "slots": 1,
            "env": [{"name": "OUTPUT_PATH", "value": "/output"}],
        },
        master={"args": ["python3", "-c", TRAIN]},
        volumes=[{"name": "output", "persistentVolumeClaim": {"claimName": "output"}}],
        volumeMounts=[{"name": "output", "mountPath": "/output"}],
    )


@pytest.fixture
def training(namespace: Namespace, tmp_path: Path) -> Iterator[Namespace]:
    """A run that has committed a step and writes its first checkpoint in ten minutes."""
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    with claimed_folder(namespace, "output", tmp_path):
        namespace.install("hvd", planned())
        wait_until(lambda: is_in_log(namespace, "COMMITTED"), 240, "a commit", PROGRAM_PAUSE)
        yield namespace


def is_in_log(namespace: Namespace, words: str) -> bool:
    jobs = namespace.jobs("hvd")
    return len(jobs) == 1 and any(line == words for line in log_of(namespace))


def log_of(namespace: Namespace) -> list[str]:
    """The lines of the master; none before it runs."""
    of = ("--namespace", namespace.name, "--container", "master")
    logs = (str(tool("kubectl")), "logs", f"job/{namespace.job('hvd')}", *of)
    return namespace.call(*logs).stdout.splitlines()


@pytest.fixture
def stopped(training: Namespace) -> Namespace:
    """The run is stopped."""
    hvdchart(training, "stop", *namespace_options(training), "hvd")
    training.wait_for_no_workers("hvd")
    return training


def test_a_stop_loses_no_step(stopped: Namespace) -> None:
    hvdchart(stopped, "restart", *namespace_options(stopped), "hvd")
    wait_until(lambda: is_in_log(stopped, "BEGINS 100"), 240, "the run continues", PROGRAM_PAUSE)


@pytest.mark.parametrize("command", [["restart", "hvd"], ["scale", "hvd", "2"]], ids=" ".join)
def test_a_change_loses_no_step(training: Namespace, command: list[str]) -> None:
    hvdchart(training, command[0], *namespace_options(training), *command[1:])
    wait_until(lambda: is_in_log(training, "BEGINS 100"), 240, "the run continues", PROGRAM_PAUSE)
