"""Trains a sharded model on three ranks, which end and begin anew; each has its own worker.

    python3 keep_shards.py fsdp2 /output/FOLDER

Prints for each attempt where each rank went on, and a digest of what it has at its end.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import keep
import numpy as np
import torch
from torch import distributed as dist
from torch import nn

KIND = sys.argv[1]
FOLDER = Path(sys.argv[2])
SIZE = 3
STEPS = 12
ENDS_AT = 7

if "RANK" not in os.environ:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    variables = {"WORLD_SIZE": SIZE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables |= {"LOCAL_RANK": 0, "OMP_NUM_THREADS": 1, "HVD_RUN_ID": "one", "HVD_ATTEMPT": 1}
    ranks = []
    for number in range(SIZE):
        ranks_own = {"RANK": number, "HVD_KEEP": FOLDER / f"worker-{number}"}
        env = os.environ | {name: str(value) for name, value in (variables | ranks_own).items()}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
    sys.exit(max(rank.wait() for rank in ranks))

dist.init_process_group("gloo")
rank = dist.get_rank()
worker = Path(os.environ["HVD_KEEP"])


class Training:
    """A network whose rows are not a multiple of the ranks."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 1))
        if KIND == "fsdp2":
            fsdp = importlib.import_module("torch.distributed.fsdp")
            for layer in [*self.model, self.model]:
                fsdp.fully_shard(layer)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01)
        elif KIND.startswith("fsdp1"):
            fsdp = importlib.import_module("torch.distributed.fsdp")
            options = {"use_orig_params": KIND == "fsdp1-orig", "device_id": torch.device("cpu")}
            self.model[0] = fsdp.FullyShardedDataParallel(self.model[0], **options)
            self.model = fsdp.FullyShardedDataParallel(self.model, **options)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01)
        else:
            optim = importlib.import_module("torch.distributed.optim")
            self.optimizer = optim.ZeroRedundancyOptimizer(
                self.model.parameters(), torch.optim.AdamW, lr=0.01
            )
        self.rate = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)

    def step(self, rows: np.ndarray) -> None:
        self.optimizer.zero_grad()
        (self.model(torch.from_numpy(rows)) ** 2).mean().backward()
        if KIND == "zero":
            # DistributedDataParallel adds in another order in its first step.
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.rate.step()

    def digest(self) -> str:
        """Of what this rank has of the weights, and of what its optimizer knows."""
        inner = self.optimizer.optim if KIND == "zero" else self.optimizer
        states = inner.state_dict()["state"].values()
        # The state_dict() of FSDP1 has what all ranks have together.
        weights = dict(self.model.named_parameters())
        if not KIND.startswith("fsdp1"):
            weights = self.model.state_dict()
        tensors = [*weights.values(), *(tensor for state in states for tensor in state.values())]
        rates = [group["lr"] for group in self.optimizer.param_groups]
        digest = hashlib.sha256(json.dumps(rates).encode())
        for tensor in tensors:
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            digest.update(local.detach().contiguous().numpy().tobytes())
        return digest.hexdigest()


launches = iter(range(1, 1000))


def attempt(steps: int, seed: int, save_at: int = 0) -> tuple[int, str]:
    """A new process that trains up to a step: where it went on, and what it has then."""
    gc.collect()
    os.environ.update(HVD_FENCE=str(next(launches)))
    training = Training(seed)
    generator = np.random.default_rng([seed, rank])
    state = keep.State(
        model=training.model,
        optimizer=training.optimizer,
        rate=training.rate,
        own=generator,
        output=FOLDER,
    )
    began = state.restore()
    for step in range(began + 1, steps + 1):
        training.step(generator.random((16, 4), "float32"))
        state.commit()
        if step == save_at:
            state.save()
    # As another process would find it.
    state.wait()
    return began, training.digest()


def forget(*lost: int) -> None:
    """Replace the workers of these ranks."""
    if rank in lost:
        shutil.rmtree(worker, ignore_errors=True)
    dist.barrier()


def interrupt(name: str) -> None:
    """Make the newest of these records incomplete on the first worker."""
    if rank == 0:
        files = [*worker.glob(f"one/*-{name}.*")]
        newest = max(files, key=lambda file: keep.read_file(file).key)
        with newest.open("r+b") as file:
            file.write(bytes(8))
    dist.barrier()


# The copy of rank 0 is on worker 1, and that of rank 2 on worker 0.
CASES: dict[str, list[Callable[[], None]]] = {
    "all are there": [lambda: None],
    "worker 1 is new": [lambda: forget(1)],
    "worker 0 is new": [lambda: forget(0)],
    "one after the other": [lambda: forget(0), lambda: forget(1), lambda: forget(2)],
    "a shard is torn": [lambda: interrupt("rank-0")],
    "a shard is torn and its copy is lost": [lambda: interrupt("rank-0"), lambda: forget(1)],
    "two are new": [lambda: forget(0, 1)],
    "all are new": [lambda: forget(0, 1, 2)],
}
seeds = iter(range(1, 100))
results = {"undisturbed": attempt(STEPS, next(seeds))}
for name, losses in CASES.items():
    forget(0, 1, 2)
    if rank == 0:
        for path in FOLDER.glob("keep-*"):
            path.unlink()
    dist.barrier()
    attempt(ENDS_AT, 1, save_at=5)
    for lose in losses[:-1]:
        lose()
        if name == "one after the other":
            # It restores, and is lost before it has made a step.
            attempt(0, 10 + next(seeds))
    losses[-1]()
    results[name] = attempt(STEPS, 10 + next(seeds))
every_rank: list[dict[str, tuple[int, str]]] = [{}] * SIZE
dist.all_gather_object(every_rank, results)
if rank == 0:
    print(f"RESULT {json.dumps({'ranks': every_rank})}", flush=True)
dist.destroy_process_group()
