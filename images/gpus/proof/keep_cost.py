"""What `keep.State.commit()` costs a training of ResNet-50, in each step and in each tenth."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

os.environ.setdefault("HVD_RUN_ID", "gpu-proof")

import horovod.torch as hvd
import keep
import torch

from images.gpus.proof.helpers import (
    compare,
    cost,
    images,
    milliseconds,
    resnet,
    start,
    step,
    tell,
)

# With the smaller batch, the CPU that starts the kernels takes as long as the GPU.
MEASURED = (
    ("SGD with momentum", 128),
    ("SGD with momentum", 256),
    ("Adam", 128),
    ("Adam", 256),
)
STEPS = 10
ROUNDS = 6
OPTIMIZERS = {
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 1e-3),
}


def count(tree: Any) -> tuple[int, int]:
    """The number of tensors in a state, and their bytes."""
    if isinstance(tree, torch.Tensor):
        return 1, tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return 0, 0
    parts = [count(each) for each in tree]
    return sum(number for number, _ in parts), sum(size for _, size in parts)


def measure(name: str, batch: int) -> dict[str, Any]:
    model = resnet()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[name](model.parameters()), model.named_parameters()
    )
    batches = images(batch)
    for each in batches:
        step(model, optimizer, each)
    state = keep.State(name=f"{name[:3]}-{batch}", model=model, optimizer=optimizer)
    state.restore()
    calls: list[float] = []

    def commit() -> None:
        began = time.perf_counter()
        state.commit()
        calls.append(time.perf_counter() - began)

    def train(every: int) -> None:
        for number in range(STEPS):
            step(model, optimizer, batches[number % len(batches)])
            if every and number % every == every - 1:
                commit()

    for _ in range(4):
        commit()
    calls.clear()
    blocks = {
        "none": lambda: train(0),
        "each step": lambda: train(1),
        "each tenth step": lambda: train(10),
    }
    times = compare(blocks, ROUNDS, STEPS)
    number, size = count([model.state_dict(), optimizer.state_dict()])
    found = {
        "tensors": number,
        "megabytes": round(size / 1e6, 1),
        "milliseconds of a step": {way: milliseconds(times[way]) for way in times},
        "milliseconds of a call": milliseconds(calls),
        "longest call": round(1e3 * max(calls), 2),
        "cost": {way: cost(times[way], times["none"]) for way in times if way != "none"},
        "GPU memory in MiB": torch.cuda.max_memory_allocated() >> 20,
    }
    print(name, batch, found, flush=True)
    began = time.perf_counter()
    state.save()
    found["milliseconds to save"] = round(1e3 * (time.perf_counter() - began), 1)
    return found


def main() -> None:
    shutil.rmtree(keep.FOLDER, ignore_errors=True)
    start()
    torch.backends.cudnn.benchmark = True
    found = {f"{name}, batch {batch}": measure(name, batch) for name, batch in MEASURED}
    worst = max(one["cost"]["each step"]["percent"] for one in found.values())
    tell({**found, "goal": "at most 2 % at one commit a step", "worst percent": worst})
    shutil.rmtree(keep.FOLDER, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
