"""PyTorchJobs and TrainJobs, whose pods all train, as in no file of of_users/ or every_key/."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.migrate.ledger import Ledger
from tests.support.migrations import migrate_tree

GPUS = {"limits": {"nvidia.com/gpu": 8}}
TORCHRUN = ["torchrun", "--nnodes=$(WORLD_SIZE)", "--nproc-per-node=4", "train.py"]


def pytorchjob(spec: dict[str, Any] | None = None, **container: Any) -> Ledger:
    """The migration of a job with a Master and a Worker, which are alike."""
    pod = {"containers": [{"name": "pytorch", "image": "a:1", **container}]}
    replicas = {role: {"replicas": 1, "template": {"spec": pod}} for role in ("Master", "Worker")}
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "job"}}
    return migrate_tree({**head, "spec": {"pytorchReplicaSpecs": replicas, **(spec or {})}})


def trainjob(runtime: str = "torch-distributed", **trainer: Any) -> Ledger:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    spec = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    return migrate_tree({**head, "metadata": {"name": "job"}, "spec": spec})


def size(migration: Ledger) -> tuple[Any, Any]:
    worker = migration.values["worker"]
    return worker["number"], worker["slots"]


@pytest.mark.parametrize(
    ("container", "command", "slots"),
    [
        # One process on each pod.
        ({"command": ["python", "train.py"], "resources": GPUS}, ["python", "train.py"], 1),
        ({"command": TORCHRUN}, ["python3", "train.py"], 4),
        ({"args": TORCHRUN}, ["python3", "train.py"], 4),
        ({"command": ["torchrun", "train.py"], "resources": GPUS}, ["python3", "train.py"], 8),
        (
            {"command": ["python", "-m", "torch.distributed.run", "train.py"], "resources": GPUS},
            ["python3", "train.py"],
            8,
        ),
        (
            {"command": ["sh", "-c", "cd /a; exec python b"]},
            ["sh", "-c", "cd /a; exec python b"],
            1,
        ),
    ],
)
def test_ranks_of_a_pytorchjob_start_without_its_launcher(
    container: dict[str, Any], command: list[str], slots: int
) -> None:
    migration = pytorchjob(**container)
    assert migration.values["master"]["args"] == command
    assert migration.values["launch"] == {"mode": "direct", "framework": "torch"}
    assert size(migration) == (2, slots)


def test_arguments_of_the_images_entry_point_are_to_be_checked() -> None:
    assert [check for check in pytorchjob(args=TORCHRUN).checks if "entry point" in check]
    whole = pytorchjob(command=TORCHRUN[:1], args=TORCHRUN[1:])
    assert not [check for check in whole.checks if "entry point" in check]


def test_where_the_old_ranks_met_is_dropped() -> None:
    """Ranks would look for rank 0 in a pod of the old job."""
    variables = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "RANK": "0", "A": "1"}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    migration = pytorchjob(command=TORCHRUN, env=env)
    assert migration.values["worker"]["env"] == [{"name": "A", "value": "1"}]
    for name in variables.keys() - {"A"}:
        dropped = [check for check in migration.checks if "is dropped" in check]
        assert f"({name})" in " ".join(dropped)


def test_one_process_beside_several_gpus_is_to_be_checked() -> None:
    checks = pytorchjob(command=["python", "train.py"], resources=GPUS).checks
    assert [check for check in checks if "8 GPUs" in check]


def test_elastic_policy_becomes_a_minimum() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 2, "rdzvBackend": "c10d", "maxRestarts": 3}
    migration = pytorchjob({"elasticPolicy": policy}, command=["torchrun", "train.py"])
    assert migration.values["worker"]["minimum"] == 1
    (entry,) = [entry for entry in migration.entries if entry.old.endswith("minReplicas")]
    assert entry.new == "worker.minimum"
    assert not [check for check in migration.checks if "elasticPolicy" in check]


def test_elastic_policy_that_needs_all_replicas_becomes_no_minimum() -> None:
    policy = {"minReplicas": 2, "maxReplicas": 2}
    migration = pytorchjob({"elasticPolicy": policy}, command=["torchrun", "train.py"])
    assert "minimum" not in migration.values["worker"]
    assert not [check for check in migration.checks if "worker.minimum" in check]


def test_image_and_numbers_of_the_runtime_are_to_be_checked() -> None:
    migration = trainjob(command=["torchrun", "train.py"], resourcesPerNode=GPUS)
    assert size(migration) == (1, 8)
    for what in ("image", "numNodes"):
        assert [check for check in migration.checks if what in check]


def test_trainjob_of_mpi_starts_with_mpirun() -> None:
    values = trainjob(command=["mpirun", "python", "train.py"], numNodes=2, numProcPerNode=4).values
    assert values["master"]["args"] == ["python", "train.py"]
    assert "launch" not in values


@pytest.mark.parametrize("command", [["lmp", "-in", "a"], ["torchrun", "--nproc-per-node=1", "a"]])
def test_processes_that_the_command_does_not_start_are_to_be_checked(
    command: list[str],
) -> None:
    migration = trainjob(command=command, numProcPerNode=4)
    assert size(migration) == (1, 1)
    assert [check for check in migration.checks if "set worker.slots to 4" in check]
    (entry,) = [entry for entry in migration.entries if entry.old.endswith("numProcPerNode")]
    assert entry.outcome == "dropped"


@pytest.mark.parametrize(
    ("runtime", "command", "is_reported"),
    [
        ("jax-distributed", ["python", "train.py"], True),
        ("flux-distributed", ["lmp"], True),
        ("torch-distributed", ["python", "train.py"], False),
        ("of-our-team", ["torchrun", "train.py"], False),
    ],
)
def test_framework_of_another_runtime_is_to_be_checked(
    runtime: str, command: list[str], is_reported: bool
) -> None:
    checks = trainjob(runtime, command=command).checks
    assert any("launch.framework" in check for check in checks) == is_reported


@pytest.mark.parametrize(
    ("trainer", "is_reported"),
    [
        ({}, True),
        ({"numProcPerNode": "auto"}, True),
        ({"numProcPerNode": "cpu"}, True),
        ({"numProcPerNode": 2}, False),
        ({"resourcesPerNode": GPUS}, False),
        ({"command": TORCHRUN}, False),
        # Without a launcher, there is one process.
        ({"command": ["python", "train.py"]}, False),
    ],
)
def test_torchrun_with_a_process_for_each_cpu_is_to_be_checked(
    trainer: dict[str, Any], is_reported: bool
) -> None:
    checks = trainjob(**{"command": ["torchrun", "train.py"], **trainer}).checks
    assert any("each CPU" in check for check in checks) == is_reported


def test_master_that_differs_from_the_workers_is_to_be_checked() -> None:
    pods = {
        role: {"template": {"spec": {"containers": [{"image": "a:1", "command": [role]}]}}}
        for role in ("Master", "Worker")
    }
    migration = pytorchjob({"pytorchReplicaSpecs": pods})
    assert migration.values["master"]["args"] == ["Worker"]
    assert [check for check in migration.checks if "Master.template is dropped" in check]


@pytest.mark.parametrize(
    ("spec", "command", "message"),
    [
        ({"pytorchReplicaSpecs": {}}, ["a"], "Master, Workers"),
        ({}, ["sh", "-c", "pip install a && torchrun b.py"], "the launcher's line alone"),
        (
            {},
            ["torchrun", "--nnodes", "1:a", "b.py"],
            "--nnodes is a",
        ),
        ({}, ["python", "-m", "torch.distributed.launch", "b.py"], "torchrun"),
        ({}, ["python", "-u", "-m", "torch.distributed.run", "b.py"], "torchrun"),
        ({}, ["sh", "-c", "cd /a; accelerate launch b.py"], "accelerate "),
        ({}, ["deepspeed", "--num_gpus=4", "b.py"], "deepspeed "),
        ({}, ["python", "b.py", "--url=tcp://$(MASTER_ADDR):1"], "$(MASTER_ADDR)"),
        ({}, ["torchrun", "--node-rank=$(RANK)", "b.py", "$(RANK)"], "$(RANK)"),
        (
            {"elasticPolicy": {"minReplicas": 4}},
            ["torchrun", "b.py"],
            "4 workers of 1 slots",
        ),
        ({"nprocPerNode": "many"}, ["torchrun", "b.py"], "auto, gpu or cpu"),
    ],
)
def test_pytorchjob_that_cannot_be_converted_is_refused(
    spec: dict[str, Any], command: list[str], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        pytorchjob(spec, command=command)
    assert message in str(error.value)
