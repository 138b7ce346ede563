"""What torchrun and JAX would tell a rank: its place, and where the ranks meet."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hvd_pods.master.launch import describe_rendezvous
from hvd_pods.pod import rank_variables
from hvd_pods.pod.rank_variables import FIRST_PORT, PORT_PAIRS
from hvd_pods.rank.warm_checks import check_environment
from hvd_pods.shared.errors import RunError
from tests.support.ports import find_port
from tests.support.runs import make_run

PLACE = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
JAX = {"JAX_PROCESS_ID": "5", "JAX_NUM_PROCESSES": "8"}
NODE = {"NODE_RANK": "2", "GROUP_RANK": "2"}
RENDEZVOUS = {
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "61004",
    "JAX_COORDINATOR_ADDRESS": "10.0.0.7:61005",
    "TORCHELASTIC_RUN_ID": "3",
}
OVER_IPV6 = {"MASTER_ADDR": "fd00::7", "JAX_COORDINATOR_ADDRESS": "[fd00::7]:61005"}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "0.0;tcp://10.0.0.7:61005",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
GIVEN = {"HVD_RENDEZVOUS": "10.0.0.7 61004 a:0-1 b:4,6-7", "HVD_POD": "b-4", "HVD_ATTEMPT": "3"}


def check_code(given: dict[str, str]) -> int:
    """The exit code with which a rank of these variables ends before it waits; 0 for none."""
    try:
        rank_variables.check_rendezvous(given)
    except rank_variables.RendezvousError as problem:
        return problem.code
    return os.EX_OK


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {**NODE, **RENDEZVOUS}),
        ({"HVD_POD": "b-7"}, {**RENDEZVOUS, "NODE_RANK": "4", "GROUP_RANK": "4"}),
        ({"HVD_POD": "elsewhere-0"}, RENDEZVOUS),
        # What worker.env says is meant; what a launcher says of a single rank is not.
        ({"MASTER_PORT": "1", "RANK": "9"}, {**NODE, **RENDEZVOUS, "MASTER_PORT": "1"}),
        ({"HVD_RENDEZVOUS": "fd00::7 61004 a:0-1 b:4"}, {**NODE, **RENDEZVOUS, **OVER_IPV6}),
        ({"HVD_FRAMEWORK": "jax"}, {**NODE, **RENDEZVOUS, **OPEN_MPI}),
        ({"HVD_RENDEZVOUS": ""}, {}),
        ({"HVD_RENDEZVOUS": "10.0.0.7"}, {}),
    ],
    ids=[
        "all",
        "later ordinal",
        "other pod",
        "own port",
        "IPv6",
        "JAX",
        "no place to meet",
        "cut",
    ],
)
def test_rank_gets_the_variables_of_torchrun_and_jax(
    changes: dict[str, str], expected: dict[str, str]
) -> None:
    chosen = rank_variables.choose((5, 8, 1, 2), {**GIVEN, **changes})
    assert chosen == {**PLACE, **JAX, **expected}


def test_master_sends_all_workers_of_a_launch_the_address_of_the_first() -> None:
    run = make_run()
    workers = run.workers[1:]
    addresses = {worker: f"10.0.0.{number}" for number, worker in enumerate(workers)}
    texts = [describe_rendezvous(run, addresses, attempt) for attempt in range(1, PORT_PAIRS + 1)]
    ports = {int(text.split()[1]) for text in texts}
    assert ports == set(range(FIRST_PORT, FIRST_PORT + 2 * PORT_PAIRS, 2)), (
        "an attempt has no other"
    )
    given = {"HVD_RENDEZVOUS": texts[0], "HVD_POD": "hvd-gpu-0"}
    chosen = rank_variables.choose((2, 6, 0, 4), given)
    assert (chosen["MASTER_ADDR"], chosen["NODE_RANK"]) == ("10.0.0.0", "1")


@pytest.mark.parametrize(
    ("before", "changes", "code"),
    [
        (0, {"HVD_FRAMEWORK": "torch"}, os.EX_TEMPFAIL),
        (0, {"HVD_FRAMEWORK": "torch", "NODE_RANK": "1"}, os.EX_CONFIG),
        (0, {"HVD_FRAMEWORK": "torch", "MASTER_ADDR": "10.0.0.9"}, os.EX_OK),
        (0, {"HVD_FRAMEWORK": "jax"}, os.EX_OK),
        (1, {"HVD_FRAMEWORK": "jax"}, os.EX_TEMPFAIL),
        (0, {"HVD_FRAMEWORK": "horovod", "NODE_RANK": "1"}, os.EX_OK),
        (0, {}, os.EX_OK),
        (0, {"HVD_RENDEZVOUS": ""}, os.EX_OK),
    ],
)
def test_ranks_that_cannot_meet_are_found_before_they_wait(
    before: int, changes: dict[str, str], code: int
) -> None:
    """Another program has the port of PyTorch, or the next one, which is JAX's."""
    with socket.create_server(("127.0.0.1", find_port())) as other:
        rendezvous = f"127.0.0.1 {other.getsockname()[1] - before} a:0"
        given = {"HVD_RENDEZVOUS": rendezvous, **changes}
        given.update(rank_variables.choose((0, 2, 0, 1), given))
        assert check_code(given) == code


def test_launch_without_a_worker_fails() -> None:
    """The only worker may go while it gets the code; a launcher of no ranks would succeed."""
    with pytest.raises(RunError, match="no worker"):
        describe_rendezvous(make_run(), {}, 1)


def test_output_of_each_run_is_apart_where_that_is_asked_for(tmp_path: Path) -> None:
    given = {"OUTPUT_PATH": f"{tmp_path}/", "HVD_OUTPUT_PER_RUN": "1", "HVD_RUN_ID": "a1"}
    given["CHECKPOINT_PATH"] = f"{tmp_path}/kept"
    chosen = rank_variables.output_of_run(given)
    assert chosen["OUTPUT_PATH"] == str(tmp_path / "run-a1")
    assert chosen["CHECKPOINT_PATH"] == str(tmp_path / "run-a1" / "kept")
    assert (tmp_path / "run-a1").is_dir()
    # A framework that is imported already does not read it.
    check_environment({**given, **chosen}, given)
    # The next process of the rank has it already.
    assert rank_variables.output_of_run({**given, **chosen}) == {}


@pytest.mark.parametrize(
    "changes", [{"HVD_OUTPUT_PER_RUN": ""}, {"OUTPUT_PATH": ""}, {"OUTPUT_PATH": "/proc/none"}]
)
def test_output_is_shared_where_runs_need_none_of_their_own(changes: dict[str, str]) -> None:
    given = {"OUTPUT_PATH": "/proc/x", "HVD_OUTPUT_PER_RUN": "1", "HVD_RUN_ID": "a1", **changes}
    assert rank_variables.output_of_run(given) == {}
