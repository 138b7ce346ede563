"""Programs that do not use Horovod, unedited, as `hvdchart deploy` starts them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import EXAMPLES
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from tests.e2e.command import hvdchart, namespace_options, write_spec
from tests.support.namespace import Namespace, image_values
from tests.support.results import read_result

# keras.distribution finds the other processes as JAX does.
KERAS = """
import os
os.environ.setdefault("KERAS_BACKEND", "jax")
import json, sys
import keras, numpy as np
keras.distribution.initialize()
import jax
keras.utils.set_random_seed(1)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
rows = np.random.default_rng(jax.process_index()).normal(size=(64, 8)).astype("float32")
losses = model.fit(rows, rows.sum(1), batch_size=16, epochs=3, verbose=0).history["loss"]
if jax.process_index() == 0:
    print("RESULT", json.dumps({"ranks": jax.process_count(), "losses": losses}), flush=True)
"""


# Gloo tells rank 0 that its peer is gone while rank 1 ends.
LOST = """
import os, signal, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
share, attempt = torch.ones(1000), int(os.environ["HVD_ATTEMPT"])
for step in range(20):
    dist.all_reduce(share)
    if step == 10 and dist.get_rank() == 1 and attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 10 and dist.get_rank() == 1 and attempt == 2:
        raise ValueError("out of luck")
    if step == 10 and dist.get_rank() == 1 and attempt == 3:
        time.sleep(3600)  # The other rank waits.
if dist.get_rank() == 0:
    print("RESULT", '{"attempt": %d}' % attempt, flush=True)
dist.destroy_process_group()
"""

# Trains calmly, and then once more with a rank that is killed after its tenth step.
KEPT = """
import json, os, signal
import keep, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["HVD_ATTEMPT"])
def train(is_kept):
    torch.manual_seed(attempt if is_kept else 1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    parallel = DistributedDataParallel(model)
    state = keep.State(model=model, optimizer=optimizer)
    began = state.restore() if is_kept else 0
    for step in range(began, 20):
        rows = torch.rand(16, 8, generator=torch.Generator().manual_seed(2 * step + rank))
        optimizer.zero_grad()
        (parallel(rows) - rows.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        if is_kept:
            state.commit()
        if is_kept and step == 9 and rank == attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return began, [weight.tolist() for weight in model.parameters()]
_, calm = train(False)
began, kept = train(True)
if rank == 0:
    found = {"attempt": attempt, "began": began, "equal": kept == calm}
    print("RESULT", json.dumps(found), flush=True)
dist.destroy_process_group()
"""


# Each rank keeps a half of the parameters.
FSDP = """
import json
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(1)
layers = torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
model = FullyShardedDataParallel(torch.nn.Sequential(*layers), device_id=torch.device("cpu"))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
torch.manual_seed(dist.get_rank())
rows, losses = torch.randn(256, 8), []
for _ in range(30):
    loss = torch.nn.functional.mse_loss(model(rows).squeeze(1), rows.sum(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    losses.append(loss.item())
if dist.get_rank() == 0:
    kept = sum(parameter.numel() for parameter in model.parameters())
    print("RESULT", json.dumps({"kept": kept, "losses": losses}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
# The first attempt continues until a worker leaves.
LEFT = """
import json, os, socket, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
hosts = [None] * dist.get_world_size()
for step in range(3000 if os.environ["HVD_ATTEMPT"] == "1" else 3):
    dist.all_gather_object(hosts, socket.gethostname())
    if dist.get_rank() == step == 0:
        print("BEGUN", os.environ["HVD_ATTEMPT"], json.dumps(hosts), flush=True)
    time.sleep(0.2)
dist.destroy_process_group()
"""


def deploy(namespace: Namespace, folder: Path, script: Path, *words: str, **spec: Any) -> str:
    """The log of a run that finishes."""
    command = ["python3", script.name, *words]
    file = write_spec(folder, namespace, command, **{"values": {}, **spec})
    done = hvdchart(
        namespace, "deploy", file, "--code", str(script), "--wait", *namespace_options(namespace)
    )
    assert done.returncode == 0, done.stdout + done.stderr + namespace.describe("hvd")
    return namespace.log("hvd")


def counts_steps(namespace: Namespace) -> bool:
    """Whether the ranks have counted steps of the script, which reports none."""
    record = namespace.get("configmap", "hvd-run")["data"]
    progress = json.loads(record["progress"])
    return bool(progress["isCounted"] and progress["step"] > 0)


@pytest.mark.parametrize("mode", [None, pytest.param("mpirun", marks=pytest.mark.rare)])
def test_ddp_trains_on_warm_ranks(
    namespace: Namespace, tmp_path: Path, pytorch_image: dict[str, str], mode: str | None
) -> None:
    launch = {"launch": {"mode": mode}} if mode else {}
    script = EXAMPLES / "digits_ddp.py"
    log = deploy(namespace, tmp_path, script, image=pytorch_image, **launch)
    run = read_result(log)
    assert run["ranks"] == 2
    assert run["ok"] is True
    assert ("$ mpirun -np 2" in log) is (mode == "mpirun")
    # Debian's Open MPI 5 changes LD_LIBRARY_PATH for its ranks.
    assert ("start cold" in log) is (mode == "mpirun")


@pytest.fixture(scope="class")
def log_of_losses(
    request: pytest.FixtureRequest,
    namespace: Namespace,
    tmp_path_factory: pytest.TempPathFactory,
    pytorch_image: dict[str, str],
) -> str:
    """The log of a run in the class's mode that has lost a rank in each of three attempts."""
    folder = tmp_path_factory.mktemp("lost")
    script = folder / "train.py"
    script.write_text(LOST)
    return deploy(
        namespace,
        folder,
        script,
        image=pytorch_image,
        launch={"mode": request.cls.MODE},
        train={"command": ["python3", "train.py"], "backoffLimit": 3},
        values={"launch": {"stallTimeoutSeconds": 10}},
    )


class TestLostRanksOfDDP:
    MODE = "direct"

    def test_fourth_attempt_finishes(self, log_of_losses: str) -> None:
        assert read_result(log_of_losses)["attempt"] == 4

    @pytest.mark.parametrize(
        ("attempt", "cause"), [(1, "ended by SIGKILL"), (2, "ValueError: out of luck")]
    )
    def test_rank_that_failed_is_named(self, log_of_losses: str, attempt: int, cause: str) -> None:
        causes = [line for line in log_of_losses.splitlines() if "[hvd] error: rank " in line]
        assert f"rank 1 on hvd-worker-1: {cause}" in causes[attempt - 1]

    def test_stacks_show_which_rank_keeps_the_other_waiting(self, log_of_losses: str) -> None:
        assert "rank 1 on hvd-worker-1 uses no CPU for" in log_of_losses
        assert 'train.py", line 14 in <module>' in log_of_losses
        assert "longer than `launch.stallTimeoutSeconds=10`" in log_of_losses

    def test_attempts_are_made_by_one_master(
        self, log_of_losses: str, namespace: Namespace
    ) -> None:
        assert len(namespace.master_pods("hvd")) == 1, "a lost rank cost the master"


@pytest.mark.rare
class TestLostRanksOfDDPUnderMpirun(TestLostRanksOfDDP):
    MODE = "mpirun"


def test_ddp_continues_after_the_last_step_of_a_rank_that_is_killed(
    namespace: Namespace, tmp_path: Path, pytorch_image: dict[str, str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(KEPT)
    train = {"command": ["python3", "train.py"], "backoffLimit": 2}
    run = read_result(deploy(namespace, tmp_path, script, image=pytorch_image, train=train))
    assert run["attempt"] == 2
    assert run["began"] == 10
    assert run["equal"] is True


def test_fsdp_shards_its_parameters(
    namespace: Namespace, tmp_path: Path, pytorch_image: dict[str, str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(FSDP)
    run = read_result(deploy(namespace, tmp_path, script, image=pytorch_image))
    assert run["kept"] == 161, "of 321 parameters"
    assert run["losses"][-1] < run["losses"][0] / 2
    assert counts_steps(namespace)


def test_ddp_continues_with_a_spare_when_a_worker_leaves(
    namespace: Namespace, pytorch_image: dict[str, str]
) -> None:
    launch = {"mode": "direct", "framework": "torch", "preload": ["torch"]}
    values = {"master": {"args": ["python3", "-c", LEFT]}, "launch": launch, "image": pytorch_image}
    namespace.install("hvd", {**values, "worker": {"number": 2, "spares": 1}})
    namespace.wait_for_event("Training", 360)
    wait_until(lambda: "BEGUN 1" in namespace.log("hvd"), 360, "the ranks have met", PROGRAM_PAUSE)
    # The spare is one of the two hosts where it was up before another worker.
    first, leaves = hosts_of_attempt(1, namespace)
    (spare,) = {"hvd-worker-0", "hvd-worker-1", "hvd-worker-2"} - {first, leaves}
    namespace.kubectl("delete", "pod", leaves, "--wait=false")
    namespace.assert_completes("hvd")
    assert set(hosts_of_attempt(2, namespace)) == {first, spare}
    assert f"{leaves} was terminated" in namespace.log("hvd")


def hosts_of_attempt(number: int, namespace: Namespace) -> list[str]:
    """By rank, as the script LEFT has printed them."""
    hosts: list[str] = json.loads(re.findall(rf"BEGUN {number} (\[.*\])", namespace.log("hvd"))[0])
    return hosts


def test_allreduce_is_measured_in_pods(
    namespace: Namespace, tmp_path: Path, pytorch_image: dict[str, str]
) -> None:
    log = deploy(namespace, tmp_path, EXAMPLES / "allreduce.py", image=pytorch_image)
    run = read_result(log)
    assert run["framework"] == "torch"
    assert run["ranks"] == 2
    assert len(run["rows"]) == 7


def test_jax_trains_in_an_image_of_pip_packages_alone(
    namespace: Namespace, tmp_path: Path, wheels_image: dict[str, str]
) -> None:
    script = EXAMPLES / "digits_jax.py"
    words = ["--epochs", "5", "--target-accuracy", "0.8"]
    log = deploy(namespace, tmp_path, script, *words, image=wheels_image)
    run = read_result(log)
    assert run["ranks"] == 2
    assert run["devices"] == 2
    assert run["ranks_agree"] is True
    assert run["ok"] is True
    assert "start cold" not in log


def test_keras_trains_on_jax(
    namespace: Namespace, tmp_path: Path, wheels_image: dict[str, str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(KERAS)
    log = deploy(namespace, tmp_path, script, image=wheels_image)
    run = read_result(log)
    assert run["ranks"] == 2
    assert run["losses"][-1] < run["losses"][0]
    assert counts_steps(namespace)


@pytest.mark.parametrize(
    "command",
    [["allreduce"], ["python3", "allreduce.py", "--framework", "mpi"]],
    ids=["C", "Python"],
)
def test_mpi_program_reduces_over_all_ranks(
    namespace: Namespace, tmp_path: Path, foreign_images: dict[str, str], command: list[str]
) -> None:
    train = {"command": command, "framework": "mpi", "backoffLimit": 0}
    image = image_values(foreign_images["plain"])
    script = EXAMPLES / "allreduce.py"
    run = read_result(deploy(namespace, tmp_path, script, image=image, train=train))
    assert run["framework"] == "mpi"
    assert run["ranks"] == 2
    assert run.get("sum", 1) == 1
