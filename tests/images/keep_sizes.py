"""Trains a sharded model on four ranks, then on fewer and on more; each has its own worker.

    python3 keep_sizes.py dtensor /output/FOLDER

Prints for each of these numbers, and each of its ranks, where it went on, a digest of all weights
and of what the optimizer knows of them then, and the same at its end.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import keep
import numpy as np
import torch
from torch import distributed as dist
from torch import nn

KIND = sys.argv[1]
FOLDER = Path(sys.argv[2])
# How many ranks make how many steps, and the workers that are new then.
PHASES: list[tuple[int, int, set[int]]] = [
    (4, 5, set()),
    (3, 3, {3}),
    (2, 2, {2}),
    (3, 0, {2}),
    (3, 0, {1}),
    (3, 1, {0}),
    (4, 1, {0, 1, 2, 3}),
]
SAVED_AT = 11

if "RANK" not in os.environ:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = []
    for number in range(4):
        variables = {"RANK": number, "LOCAL_RANK": 0, "OMP_NUM_THREADS": 1, "HVD_RUN_ID": "one"}
        variables |= {"PORT": port, "HVD_ATTEMPT": 1, "HVD_KEEP": FOLDER / f"worker-{number}"}
        env = os.environ | {name: str(value) for name, value in variables.items()}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
    sys.exit(max(rank.wait() for rank in ranks))

rank = int(os.environ["RANK"])
worker = Path(os.environ["HVD_KEEP"])


class Training:
    """Weights whose rows are not a multiple of the ranks."""

    def __init__(self, seed: int, size: int) -> None:
        torch.manual_seed(seed)
        self.model: Any = nn.Sequential(
            nn.Linear(4, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 1)
        )
        if KIND == "fsdp2":
            fsdp = importlib.import_module("torch.distributed.fsdp")
            for layer in [*self.model, self.model]:
                fsdp.fully_shard(layer)
            self.weights = [*self.model.parameters()]
        else:
            dtensor = importlib.import_module("torch.distributed.tensor")
            mesh = dtensor.init_device_mesh("cpu", (size,))
            self.weights = [
                nn.Parameter(dtensor.distribute_tensor(weight, mesh, [dtensor.Shard(0)]))
                for weight in map(torch.Tensor.detach, self.model.parameters())
            ]
            self.model = nn.ParameterList(self.weights)
        self.optimizer = torch.optim.AdamW(self.weights, 0.01)

    def step(self) -> None:
        self.optimizer.zero_grad()
        if KIND == "fsdp2":
            (self.model(torch.rand(16, 4)) ** 2).mean().backward()
        else:
            for weight in self.weights:
                weight.grad = weight.detach() * 2 + 1
        self.optimizer.step()

    def digest(self) -> str:
        states = self.optimizer.state_dict()["state"].values()
        tensors = [*self.weights, *(tensor for state in states for tensor in state.values())]
        digest = hashlib.sha256()
        for tensor in tensors:
            whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            digest.update(whole.detach().numpy().tobytes())
        return digest.hexdigest()


def attempt(launch: int, size: int, steps: int) -> tuple[int, str, str]:
    """New processes: where they go on, and what they have then and at the end."""
    os.environ.update(HVD_FENCE=str(launch))
    training = Training(launch, size)
    random = np.random.default_rng(rank)
    state: Any = keep.State(
        model=training.model, optimizer=training.optimizer, own=random, made=[], output=FOLDER
    )
    began = state.restore()
    begin = training.digest()
    for _ in range(steps):
        training.step()
        state.made = [*state.made, launch]
        state.commit()
        if state.step == SAVED_AT:
            state.save()
    # As another process would find it.
    state.wait()
    assert len(state.made) == state.step
    return began, begin, training.digest()


store = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), 4, rank == 0, use_libuv=False)
attempts = []
for number, (size, steps, lost) in enumerate(PHASES, 1):
    if rank in lost:
        shutil.rmtree(worker, ignore_errors=True)
    if rank < size:
        rendezvous = dist.PrefixStore(f"phase-{number}", store)
        dist.init_process_group("gloo", store=rendezvous, rank=rank, world_size=size)
        attempts.append([size, *attempt(number, size, steps)])
        dist.destroy_process_group()
if rank == 0:
    print(f"RESULT {json.dumps({'attempts': attempts})}", flush=True)
