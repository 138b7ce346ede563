"""ResNet-50, synthetic images: plain PyTorch, Horovod and DDP in turns of one process.

`throughput waiting` measures plain PyTorch and Horovod alone, with the smaller batch.
"""

from __future__ import annotations

import os
import statistics
import sys
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch

from devtools.gpus.training import (
    BATCH_SIZES,
    compare_ways,
    make_resnet,
    print_result,
    random_batches,
    relative_cost,
    start_horovod,
    train_step,
)

TURN_STEPS = 10
TURNS = 8
WAYS = ("plain", "Horovod", "Horovod, float16", "DDP")


def make(way: str) -> tuple[torch.nn.Module, Any]:
    """Return a model and its optimizer, trained in this way."""
    model = make_resnet()
    optimizer: Any = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-5)
    if way == "DDP":
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0]), optimizer
    if way.startswith("Horovod"):
        options = {"Horovod, float16": {"compression": hvd.Compression.fp16}}.get(way, {})
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    return model, optimizer


def main() -> None:
    is_waiting = sys.argv[1:] == ["waiting"]
    start_horovod()
    torch.backends.cudnn.benchmark = True
    torch.distributed.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1
    )
    ways = {way: make(way) for way in (WAYS[:2] if is_waiting else WAYS)}
    result: dict[str, Any] = {}
    for size in BATCH_SIZES[:1] if is_waiting else BATCH_SIZES:
        batches = random_batches(size)

        def train(way: str, batches: Any = batches) -> None:
            for number in range(TURN_STEPS):
                loss = train_step(*ways[way], batches[number % len(batches)])
            assert float(loss) == float(loss), f"{way}: the loss is NaN"

        blocks = {way: partial(train, way) for way in ways}
        times = compare_ways(blocks, TURNS, TURN_STEPS)
        result[f"batch {size}"] = {
            way: {
                "images per second": round(size / statistics.median(times[way])),
                "range": [round(size / max(times[way])), round(size / min(times[way]))],
                "cost beside plain": relative_cost(times[way], times["plain"]),
            }
            for way in ways
        }
        print_result(result)
    os._exit(0)


if __name__ == "__main__":
    main()
