"""Checks of Horovod with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from .plain import BATCH, RATE, assert_close, assert_equal_on_ranks, data, raises

assert_same_on_all_ranks = partial(assert_equal_on_ranks, hvd.allgather_object)


def sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, RATE / 5, momentum=0.9)


def adam(parameters: Any) -> Optimizer:
    return torch.optim.Adam(parameters, 0.01)


def tensors(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = data(rank)
    return torch.from_numpy(x), torch.from_numpy(y)


def whole() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the batches of all ranks in one."""
    xs, ys = zip(*(tensors(rank) for rank in range(hvd.size())), strict=True)
    return torch.cat(xs), torch.cat(ys)


def net(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def distributed(model: nn.Module, optimizer: Optimizer, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    return nn.functional.mse_loss(model(x), y)


def step(model: nn.Module, optimizer: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    optimizer.step()


def train(model: nn.Module, optimizer: Any, steps: int = 1) -> None:
    """Train with the batch of this rank."""
    for _ in range(steps):
        step(model, optimizer, tensors(hvd.rank()))


def weights(model: nn.Module) -> list[np.ndarray]:
    return [value.detach().numpy().copy() for value in model.state_dict().values()]


def expected_after(steps: int, make: Callable[[Any], Optimizer]) -> list[np.ndarray]:
    """Return the weights of one process after training with the batches of all ranks in one."""
    reference = net()
    optimizer = make(reference.parameters())
    for _ in range(steps):
        step(reference, optimizer, whole())
    return weights(reference)


def assert_trained_as_one(
    mine: nn.Module, steps: int, make: Callable[[Any], Optimizer], tolerance: float = 1e-5
) -> None:
    """Assert that the weights are those of one process, and the same on all ranks."""
    assert_close(weights(mine), expected_after(steps, make), tolerance)
    assert_same_on_all_ranks(weights(mine))


def state_of(optimizer: Optimizer) -> list[np.ndarray]:
    state = optimizer.state_dict()["state"]
    return [np.array(value) for pid in sorted(state) for _, value in sorted(state[pid].items())]


def an_optimizer_trains_as_one_process_with_all_batches() -> None:
    for make in (sgd, adam):
        mine = net()
        optimizer = distributed(mine, make(mine.parameters()))
        train(mine, optimizer, 3)
        assert_trained_as_one(mine, 3, make)


def parameters_and_optimizer_state_are_broadcast() -> None:
    for make in (sgd, adam):
        mine = net(seed=hvd.rank())
        optimizer = make(mine.parameters())
        if hvd.rank() == 0:
            # Like a rank that resumed from a checkpoint next to ranks that start from scratch.
            for _ in range(2):
                step(mine, optimizer, whole())
            optimizer.param_groups[0]["lr"] = 0.125
        wanted = hvd.broadcast_object([weights(mine), state_of(optimizer)], root_rank=0)
        hvd.broadcast_parameters(mine.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        # A rank without optimizer state creates it with a step without gradients. Momentum and
        # decay may turn this step into a change: broadcast the weights last where that matters.
        hvd.broadcast_parameters(mine.state_dict(), root_rank=0)
        assert_close(weights(mine), wanted[0], 0)
        assert_close(state_of(optimizer), wanted[1], 0)
        assert optimizer.param_groups[0]["lr"] == 0.125
        train(mine, distributed(mine, optimizer))
        assert_same_on_all_ranks(weights(mine))


def operations_work_on_every_type_they_take() -> None:
    rank = hvd.rank()
    size = hvd.size()
    total = sum(range(size))
    added = [torch.int32, torch.int64]
    added += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for kind in (*added, torch.uint8):
        ones = torch.tensor([[1, rank]]).to(kind)
        if kind in added:
            assert hvd.allreduce(ones, op=hvd.Sum).tolist() == [[size, total]], kind
            assert hvd.allreduce(ones, op=hvd.Min).tolist() == [[1, 0]], kind
            assert hvd.allreduce(ones, op=hvd.Max).tolist() == [[1, size - 1]], kind
        # Ranks may contribute different numbers of rows.
        rows = hvd.allgather(ones.repeat(rank + 1, 1))
        assert rows.tolist() == [[1, r] for r in range(size) for _ in range(r + 1)], kind
        assert hvd.broadcast(ones, root_rank=size - 1).tolist() == [[1, size - 1]], kind
        swapped = hvd.alltoall(torch.full((size,), rank).to(kind))
        assert swapped.tolist() == list(range(size)), kind
    scattered = hvd.reducescatter(torch.arange(2.0 * size), op=hvd.Sum)
    assert scattered.tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size]
    pair = hvd.grouped_allreduce([torch.full((2,), float(rank)), torch.ones(1)])
    assert_close(pair, [[total / size] * 2, [1.0]])
    hvd.barrier()


def tensors_in_any_dense_order_keep_it() -> None:
    rank = hvd.rank()
    size = hvd.size()
    data = torch.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    last = (data + rank).contiguous(memory_format=torch.channels_last)
    total = size * data + sum(range(size))
    reduced = [hvd.allreduce(last, op=hvd.Sum), hvd.grouped_allreduce([last], op=hvd.Sum)[0]]
    for got in reduced:
        assert got.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(got, total)
    sent = hvd.broadcast(last, root_rank=size - 1)
    assert torch.equal(sent, data + size - 1)
    hvd.broadcast_(last, root_rank=0)
    assert torch.equal(last, data)
    # A tensor with gaps is copied, unless the operation is in place.
    assert torch.equal(hvd.allreduce(data[:, ::2], op=hvd.Sum), size * data[:, ::2])
    raises(ValueError, "dense", lambda: hvd.allreduce_(data[:, ::2]))


def other_orders_of_the_ranks_are_refused() -> None:
    if hvd.size() == 1:
        return
    square = torch.arange(9.0).reshape(3, 3, 1)
    mine = square.transpose(0, 1) if hvd.rank() == 0 else square
    raises(hvd.HorovodInternalError, "shape", lambda: hvd.allreduce(mine, name="orders"))


def weights_in_channels_last_train_as_one_process() -> None:
    def make() -> nn.Module:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        return model.to(memory_format=torch.channels_last)

    torch.manual_seed(2)
    x = torch.randn(hvd.size() * 2, 3, 4, 4)
    mine = make()
    reference = make()
    hvd.broadcast_parameters(mine.state_dict(), root_rank=0)
    optimizer = distributed(mine, sgd(mine.parameters()))
    alone = sgd(reference.parameters())
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        mine(x[2 * hvd.rank() :][:2]).square().mean().backward()
        optimizer.step()
        alone.zero_grad()
        reference(x).square().mean().backward()
        alone.step()
    assert mine[0].weight.grad.is_contiguous(memory_format=torch.channels_last)
    assert_close(weights(mine), weights(reference))


def gradients_of_several_passes_are_sent_at_once() -> None:
    mine = net()
    optimizer = distributed(mine, sgd(mine.parameters()), backward_passes_per_step=2)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            (loss_of(mine, tensors(hvd.rank())) / 2).backward()
        optimizer.step()
    assert_close(weights(mine), expected_after(2, sgd))
    for _ in range(2):
        loss_of(mine, tensors(hvd.rank())).backward()
    raises(
        AssertionError,
        "more than backward_passes_per_step times",
        loss_of(mine, tensors(hvd.rank())).backward,
    )
    optimizer.step()


def groups_and_compression_lose_no_gradient() -> None:
    for options, tolerance in (
        (lambda _: {"groups": 2}, 1e-5),
        (lambda model: {"groups": [list(model[i].parameters()) for i in (0, 2)]}, 1e-5),
        (lambda _: {"compression": hvd.Compression.fp16}, 0.01),
        (lambda _: {"gradient_predivide_factor": 2.0}, 1e-5),
    ):
        mine = net()
        optimizer = distributed(mine, sgd(mine.parameters()), **options(mine))
        train(mine, optimizer)
        assert_trained_as_one(mine, 1, sgd, tolerance)


def sparse_gradients_are_averaged() -> None:
    for as_dense in (False, True):
        mine = embedding()
        reference = embedding()
        optimizer = distributed(
            mine, torch.optim.SGD(mine.parameters(), RATE), sparse_as_dense=as_dense
        )
        mine(torch.tensor([hvd.rank(), hvd.size()])).sum().backward()
        optimizer.step()
        alone = torch.optim.SGD(reference.parameters(), RATE)
        rows = [row for rank in range(hvd.size()) for row in (rank, hvd.size())]
        (reference(torch.tensor(rows)).sum() / hvd.size()).backward()
        alone.step()
        assert_close(weights(mine), weights(reference))


def embedding() -> nn.Module:
    torch.manual_seed(1)
    return nn.Embedding(hvd.size() + 1, 2, sparse=True)


def elastic_state_is_saved_restored_and_synchronized() -> None:
    mine = net(seed=hvd.rank())
    optimizer = distributed(mine, adam(mine.parameters()))
    sampler = hvd.elastic.ElasticSampler(range(4 * hvd.size() * BATCH), shuffle=False)
    state = hvd.elastic.TorchState(
        model=mine, optimizer=optimizer, sampler=sampler, epoch=hvd.rank()
    )
    state.sync()
    assert state.epoch == 0
    assert_same_on_all_ranks(weights(mine))
    train(mine, optimizer)
    sampler.record_batch(0, BATCH)
    state.epoch = 3
    state.commit()
    saved = [weights(mine), state_of(optimizer)]
    train(mine, optimizer)
    sampler.record_batch(1, BATCH)
    state.epoch = 5
    state.restore()
    assert_close(weights(mine), saved[0], 0)
    assert_close(state_of(optimizer), saved[1], 0)
    assert state.epoch == 3
    # Samples from before the commit do not repeat, and no other sample is left out.
    left = [index for indices in hvd.allgather_object(list(sampler)) for index in indices]
    assert sorted(left) == list(range(hvd.size() * BATCH, 4 * hvd.size() * BATCH))


def ranks_with_more_batches_go_on_alone() -> None:
    mine = net()
    optimizer = distributed(mine, sgd(mine.parameters()))
    train(mine, optimizer, 1 + hvd.rank())
    assert hvd.join() == hvd.size() - 1
