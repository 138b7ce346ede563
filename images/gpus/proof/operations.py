"""Check Horovod's operations on GPU tensors: values, types, layouts, options of the optimizer."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn

from images.gpus.proof.helpers import seconds_of, start, tell

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)
# PyTorch's operations gather and broadcast these, and add none of them.
OTHERS = (torch.uint8, torch.int8)
# The relative error of a norm.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-6, torch.float64: 1e-12}
# Some 0.1 s of a GPU that waits.
BUSY_CYCLES = 200_000_000
results: dict[str, str] = {}


def check(name: str, call: Callable[[], Any]) -> None:
    """Run a check; its result is what it returns, or the error after `FAILED`."""
    began = time.monotonic()
    try:
        results[name] = str(call() or "passed")
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - the next check runs all the same
        results[name] = f"FAILED {type(error).__name__}: {error}"[:400]
    if hvd.rank() == 0:
        print(f"{name}: {results[name]} ({time.monotonic() - began:.2f} s)", flush=True)


def everybody(shape: tuple[int, ...], kind: torch.dtype, seed: int) -> list[torch.Tensor]:
    """The tensors of all ranks, the same on each of them."""
    generator = torch.Generator().manual_seed(seed)
    if kind.is_floating_point:
        made = [torch.randn(shape, generator=generator) for _ in range(hvd.size())]
    else:
        made = [torch.randint(0, 5, shape, generator=generator) for _ in range(hvd.size())]
    return [each.to(kind).cuda() for each in made]


def assert_close(got: torch.Tensor, wanted: torch.Tensor, kind: torch.dtype) -> None:
    assert got.device.type == "cuda", got.device
    norm = wanted.double().norm().clamp_min(1e-30)
    difference = float((got.double() - wanted.double()).norm() / norm)
    assert difference <= TOLERANCE.get(kind, 0), difference


def check_reductions(kind: torch.dtype) -> None:
    parts = everybody((1000, 37), kind, 1)
    mine = parts[hvd.rank()]
    stack = torch.stack([part.double() for part in parts])
    assert_close(hvd.allreduce(mine, op=hvd.Sum), stack.sum(0), kind)
    assert_close(hvd.allreduce(mine, op=hvd.Min), stack.min(0).values, kind)
    assert_close(hvd.allreduce(mine, op=hvd.Max), stack.max(0).values, kind)
    assert_close(hvd.allreduce(mine, op=hvd.Product), stack.prod(0), kind)
    if kind.is_floating_point:
        assert_close(hvd.allreduce(mine, op=hvd.Average), stack.mean(0), kind)
        scaled = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        assert_close(scaled, stack.sum(0) * 2, kind)
        grouped = hvd.grouped_allreduce(
            [mine, mine[:3].contiguous()], op=hvd.Sum, prescale_factor=0.5
        )
        assert_close(grouped[1], stack.sum(0)[:3] / 2, kind)


def check_copies(kind: torch.dtype) -> None:
    parts = everybody((6, 5), kind, 2)
    rank = hvd.rank()
    rows = hvd.allgather(parts[rank][: rank + 3])
    assert_close(rows, torch.cat([p[: r + 3] for r, p in enumerate(parts)]), kind)
    target = parts[rank].clone()
    hvd.broadcast_(target, hvd.size() - 1)
    assert_close(target, parts[-1], kind)
    each = 6 // hvd.size()
    splits = torch.tensor([each] * (hvd.size() - 1) + [6 - each * (hvd.size() - 1)])
    got, _ = hvd.alltoall(parts[rank], splits.to(torch.int32))
    begin = int(splits[:rank].sum())
    wanted = torch.cat([p[begin : begin + int(splits[rank])] for p in parts])
    assert_close(got, wanted, kind)


def check_reducescatter(kind: torch.dtype) -> None:
    whole = everybody((4 * hvd.size(), 3), kind, 3)
    got = hvd.reducescatter(whole[hvd.rank()], op=hvd.Sum)
    total = torch.stack([each.double() for each in whole]).sum(0)
    assert_close(got, total[4 * hvd.rank() : 4 * hvd.rank() + 4], kind)


def check_layouts() -> str:
    """channels_last keeps its layout; a slice is copied by what does not work in place."""
    parts = everybody((4, 8, 5, 5), torch.float32, 4)
    stack = torch.stack(parts)
    last = parts[hvd.rank()].contiguous(memory_format=torch.channels_last)
    reduced = hvd.allreduce(last, op=hvd.Sum)
    assert_close(reduced, stack.sum(0), torch.float32)
    assert reduced.is_contiguous(memory_format=torch.channels_last)
    target = last.clone(memory_format=torch.preserve_format)
    hvd.broadcast_(target, hvd.size() - 1)
    assert_close(target, parts[-1], torch.float32)
    sliced = hvd.allreduce(parts[hvd.rank()][:, ::2], op=hvd.Sum)
    assert_close(sliced, stack.sum(0)[:, ::2], torch.float32)
    return "channels_last kept its layout"


def check_streams() -> None:
    """An operation begins after the kernels of the stream that it was called in."""
    stream = torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(stream):
            x = torch.randn(4096, 4096, device="cuda")
            y = x @ x
            total = hvd.allreduce(y, op=hvd.Sum, name="own-stream")
            rest = total - y * hvd.size()
        stream.synchronize()
        if hvd.size() == 1:
            assert float(rest.abs().max()) == 0.0


def check_other_stream() -> str:
    """The CPU goes on, and the stream that takes the result waits for the GPU."""
    begin = torch.cuda.Stream()
    take = torch.cuda.Stream()
    x = torch.zeros(1 << 22, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(begin):
        torch.cuda._sleep(BUSY_CYCLES)
        x.add_(3)
        began = time.monotonic()
        handle = hvd.allreduce_async(x, op=hvd.Sum, name="taken-elsewhere")
        is_early = hvd.poll(handle)
    with torch.cuda.stream(take):
        taken = hvd.synchronize(handle).clone()
        milliseconds = 1e3 * (time.monotonic() - began)
    take.synchronize()
    busy = 1e3 * (time.monotonic() - began)
    assert float(taken.min()) == float(taken.max()) == 3 * hvd.size(), taken
    assert not is_early, "poll() said that the operation was complete"
    assert milliseconds < busy / 2, f"the CPU waited {milliseconds:.1f} of {busy:.1f} ms"
    return f"the CPU waited {milliseconds:.1f} ms, the stream {busy:.1f} ms"


def check_poll() -> None:
    """poll() becomes true when the GPU is ready, and then the result is there."""
    torch.cuda._sleep(BUSY_CYCLES // 10)
    handle = hvd.allreduce_async(torch.full((1000,), 2.0, device="cuda"), op=hvd.Sum, name="poll")
    deadline = time.monotonic() + 10
    while not hvd.poll(handle):
        assert time.monotonic() < deadline, "poll() is never true"
    assert float(hvd.synchronize(handle).max()) == 2 * hvd.size()


def check_memory_of_input() -> None:
    """The memory of an input is used again only when its operation has read it."""
    stream = torch.cuda.Stream()
    for number in range(10):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY_CYCLES // 10)
            x = torch.full((1 << 22,), 2.0, device="cuda")
            total = hvd.allreduce(x, op=hvd.Sum, name=f"freed{number}")
            del x
            garbage = torch.full((1 << 22,), 7.0, device="cuda")
        stream.synchronize()
        assert float(total.min()) == float(total.max()) == 2 * hvd.size()
        del garbage


def check_process_set() -> str:
    if hvd.size() == 1:
        return "not with one rank, whose only set is the global one"
    alone = hvd.add_process_set([0])
    if hvd.rank() == 0:
        ones = torch.ones(1000, device="cuda")
        total = hvd.allreduce(ones, op=hvd.Sum, process_set=alone)
        assert float(total.max()) == 1.0
    hvd.remove_process_set(alone)
    return "passed"


def net(kind: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10)).cuda().to(kind)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


def check_training(
    make: Callable[[Any], torch.optim.Optimizer] = sgd,
    kind: torch.dtype = torch.float32,
    steps: int = 5,
    **options: Any,
) -> str:
    """Ranks with their own batches get the weights of one process that has all batches."""
    mine = net(kind)
    one = net(kind)
    optimizer = hvd.DistributedOptimizer(
        make(mine.parameters()), mine.named_parameters(), **options
    )
    hvd.broadcast_parameters(mine.state_dict(), root_rank=0)
    alone = make(one.parameters())
    generator = torch.Generator().manual_seed(7)
    begin = hvd.rank() * 32
    for _ in range(steps):
        xs = torch.randn(hvd.size() * 32, 64, generator=generator).cuda().to(kind)
        ys = torch.randn(hvd.size() * 32, 10, generator=generator).cuda().to(kind)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(mine(xs[begin : begin + 32]), ys[begin : begin + 32]).backward()
        optimizer.step()
        alone.zero_grad()
        nn.functional.mse_loss(one(xs), ys).backward()
        alone.step()
    pairs = zip(mine.parameters(), one.parameters(), strict=True)
    worst = max(float(((a - b).norm() / b.norm()).detach()) for a, b in pairs)
    assert worst < (5e-2 if kind != torch.float32 or options else 1e-5), worst
    return f"weights differ by {worst:.1e}"


def check_channels_last_training() -> str:
    """A convolution's gradients are reduced in the layout of its weights."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 2)).cuda()
    model = model.to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    model(torch.randn(4, 3, 8, 8, device="cuda")).sum().backward()
    before = model[0].weight.grad.clone()
    optimizer.step()
    assert model[0].weight.grad.is_contiguous(memory_format=torch.channels_last)
    if hvd.size() == 1:
        assert torch.equal(before, model[0].weight.grad)
    return "gradients kept their layout"


def check_grad_scaler() -> str:
    model = net(torch.float32)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
    )
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(torch.ones(32, 64, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    assert losses[-1] < losses[0], losses
    return f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


def check_sync_batch_norm() -> None:
    torch.manual_seed(3)
    sync = hvd.SyncBatchNorm(8).cuda()
    plain = nn.BatchNorm2d(8).cuda()
    x = torch.randn(hvd.size() * 4, 8, 5, 5, device="cuda")
    hvd.broadcast_(x, 0)
    begin = 4 * hvd.rank()
    got = sync(x[begin : begin + 4].clone())
    assert_close(got, plain(x)[begin : begin + 4], torch.float16)
    assert_close(sync.running_var, plain.running_var, torch.float16)


def check_elastic_state() -> None:
    model = net(torch.float32)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), 1e-3), model.named_parameters()
    )
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    optimizer.step()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=1)
    state.sync()
    state.commit()
    kept = [p.detach().clone() for p in model.parameters()]
    optimizer.zero_grad()
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    optimizer.step()
    state.restore()
    assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def times_of_allreduce() -> dict[str, float]:
    """Milliseconds of an allreduce in place, by bytes: the median of 30 after 5."""
    found = {}
    for size in (1 << 10, 1 << 20, 25_557_032):
        x = torch.randn(size, device="cuda")
        seconds = [seconds_of(partial(hvd.allreduce_, x, name=f"time{size}")) for _ in range(35)]
        found[str(4 * size)] = round(1e3 * statistics.median(seconds[5:]), 3)
    return found


def main() -> int:
    start()
    for kind in (*FLOATS, *INTEGERS, *OTHERS):
        label = str(kind).partition(".")[2]
        if kind not in OTHERS:
            check(f"allreduce of {label}", partial(check_reductions, kind))
            check(f"reducescatter of {label}", partial(check_reducescatter, kind))
        check(f"allgather, broadcast, alltoall of {label}", partial(check_copies, kind))
    check("layouts", check_layouts)
    check("streams", check_streams)
    check("a result that another stream takes", check_other_stream)
    check("poll", check_poll)
    check("memory of an input", check_memory_of_input)
    check("process sets", check_process_set)
    check("barrier and join", lambda: (hvd.barrier(), hvd.join()) and "passed")
    check("SGD as one process", check_training)
    check("Adam as one process", lambda: check_training(lambda p: torch.optim.Adam(p, 1e-3)))
    check(
        "fused AdamW as one process",
        lambda: check_training(lambda p: torch.optim.AdamW(p, 1e-3, fused=True)),
    )
    check("compression to float16", lambda: check_training(compression=hvd.Compression.fp16))
    check("groups", lambda: check_training(groups=2))
    check("predivide factor", lambda: check_training(gradient_predivide_factor=2.0))
    if hvd.mpi_enabled():
        check("Adasum", lambda: check_training(steps=2, op=hvd.Adasum))
    check("weights in bfloat16", lambda: check_training(kind=torch.bfloat16))
    check("weights in float16", lambda: check_training(kind=torch.float16))
    check("weights in channels_last", check_channels_last_training)
    check("GradScaler and autocast", check_grad_scaler)
    check("SyncBatchNorm", check_sync_batch_norm)
    check("elastic state", check_elastic_state)
    failed = {name: text for name, text in results.items() if text.startswith("FAILED")}
    tell(
        {
            "controller": "MPI" if hvd.mpi_enabled() else "Gloo",
            "nccl": hvd.nccl_built(),
            "ranks": hvd.size(),
            "passed": len(results) - len(failed),
            "failed": failed,
            "milliseconds of an allreduce by bytes": times_of_allreduce(),
        }
    )
    hvd.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
