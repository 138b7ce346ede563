"""Code that several stages use: ResNet-50, its steps, and the comparison of ways to train."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import horovod.torch as hvd
import torch

# With the smaller batch, the CPU takes as long to start the kernels as the GPU takes to run them.
BATCH_SIZES = (128, 256)


def start_horovod() -> None:
    """Start Horovod and select the GPU.

    On a single rank, Horovod's optimizer reduces nothing unless other ranks may join.
    """
    hvd.init()
    torch.cuda.set_device(0)
    os.environ["HOROVOD_ELASTIC"] = "1"


def print_result(result: dict[str, Any]) -> None:
    """Print the result of a stage."""
    print("RESULT", json.dumps(result, default=str), flush=True)


def make_resnet() -> torch.nn.Module:
    import torchvision

    torch.manual_seed(1)
    return torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)


def random_batches(batch: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return three batches of random images and labels on the GPU."""
    batches = []
    for _ in range(3):
        x = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(
            memory_format=torch.channels_last
        )
        batches.append((x, torch.randint(0, 1000, (batch,), device="cuda")))
    return batches


def train_step(
    model: torch.nn.Module, optimizer: Any, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Run one step with autocast to bfloat16."""
    x, y = batch
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes until the GPU has done its part."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def compare_ways(
    blocks: Mapping[str, Callable[[], object]], rounds: int, per_block: int
) -> dict[str, list[float]]:
    """Return the seconds of each way for one of the `per_block` steps of a block, in turns of both
    orders.
    """
    for block in blocks.values():
        block()
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for number in range(rounds):
        for name in list(blocks) if number % 2 == 0 else list(blocks)[::-1]:
            times[name].append(seconds_of(blocks[name]) / per_block)
    return times


def relative_cost(times: list[float], base: list[float]) -> dict[str, Any]:
    """Return by how many percent of throughput one way is slower than another, and the range of
    turns.
    """
    ratios = sorted(
        base_seconds / seconds for seconds, base_seconds in zip(times, base, strict=True)
    )
    return {
        "percent": round(100 * (1 - statistics.median(ratios)), 2),
        "range": [round(100 * (1 - ratios[-1]), 2), round(100 * (1 - ratios[0]), 2)],
    }


def median_milliseconds(times: list[float]) -> float:
    return round(1e3 * statistics.median(times), 2)
