"""Check Horovod's operations on GPU tensors: values, types, layouts, options of the optimizer.

One rank runs them, because there is one GPU; NCCL still takes part.

`operations two-ranks own|same` shows the result of two ranks beside one GPU. own: each rank selects
the GPU of its local rank, and the second GPU is missing. same: both select the first GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn

from devtools.gpus.training import print_result, seconds_of, start_horovod

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)
# PyTorch's operations gather and broadcast these types, but do not add them.
OTHERS = (torch.uint8, torch.int8)
# The relative error of a norm.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-6, torch.float64: 1e-12}
# About 0.1 s of a GPU that waits.
BUSY_CYCLES = 200_000_000
results: dict[str, str] = {}


def check(name: str, call: Callable[[], Any]) -> None:
    """Run a check. Its result is its return value, or the error after `FAILED`."""
    began = time.monotonic()
    try:
        results[name] = str(call() or "passed")
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - the next check runs all the same
        results[name] = f"FAILED {type(error).__name__}: {error}"[:400]
    print(f"{name}: {results[name]} ({time.monotonic() - began:.2f} s)", flush=True)


def tensor(kind: torch.dtype, *shape: int) -> torch.Tensor:
    """Return the same numbers in each call, small integers for an integer type."""
    generator = torch.Generator().manual_seed(1)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind).cuda()
    return torch.randint(0, 5, shape, generator=generator).to(kind).cuda()


def assert_close(got: torch.Tensor, wanted: torch.Tensor, kind: torch.dtype) -> None:
    assert got.device.type == "cuda", got.device
    norm = wanted.double().norm().clamp_min(1e-30)
    difference = float((got.double() - wanted.double()).norm() / norm)
    assert difference <= TOLERANCE.get(kind, 0), difference


def check_reductions(kind: torch.dtype) -> None:
    x = tensor(kind, 1000, 37)
    for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        assert_close(hvd.allreduce(x, op=op), x, kind)
    if kind.is_floating_point:
        assert_close(hvd.allreduce(x, op=hvd.Average), x, kind)
        scaled = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        assert_close(scaled, x.double() * 2, kind)
        grouped = hvd.grouped_allreduce([x, x[:3].contiguous()], op=hvd.Sum, prescale_factor=0.5)
        assert_close(grouped[1], x[:3].double() / 2, kind)


def check_copies(kind: torch.dtype) -> None:
    x = tensor(kind, 6, 5)
    assert_close(hvd.allgather(x[:3]), x[:3], kind)
    target = x.clone()
    hvd.broadcast_(target, 0)
    assert_close(target, x, kind)
    got, _ = hvd.alltoall(x, torch.tensor([6], dtype=torch.int32))
    assert_close(got, x, kind)


def check_reducescatter(kind: torch.dtype) -> None:
    x = tensor(kind, 4, 3)
    assert_close(hvd.reducescatter(x, op=hvd.Sum), x, kind)


def check_layouts() -> str:
    """Check that channels_last keeps its layout, and that an operation that is not in place copies
    a slice.
    """
    x = tensor(torch.float32, 4, 8, 5, 5)
    last = x.contiguous(memory_format=torch.channels_last)
    reduced = hvd.allreduce(last, op=hvd.Sum)
    assert_close(reduced, x, torch.float32)
    assert reduced.is_contiguous(memory_format=torch.channels_last)
    target = last.clone(memory_format=torch.preserve_format)
    hvd.broadcast_(target, 0)
    assert_close(target, x, torch.float32)
    assert_close(hvd.allreduce(x[:, ::2], op=hvd.Sum), x[:, ::2], torch.float32)
    return "channels_last kept its layout"


def check_other_stream() -> str:
    """Check that an operation begins after the kernels of the stream that it was called in. The CPU
    continues, and the stream that takes the result waits for the GPU.
    """
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
    assert float(taken.min()) == float(taken.max()) == 3, taken
    assert not is_early, "poll() said that the operation was complete"
    assert milliseconds < busy / 2, f"the CPU waited {milliseconds:.1f} of {busy:.1f} ms"
    return f"the CPU waited {milliseconds:.1f} ms, the stream {busy:.1f} ms"


def check_poll() -> None:
    """Check that poll() is true when the GPU is ready, and that the result is complete then."""
    torch.cuda._sleep(BUSY_CYCLES // 10)
    handle = hvd.allreduce_async(torch.full((1000,), 2.0, device="cuda"), op=hvd.Sum, name="poll")
    deadline = time.monotonic() + 10
    while not hvd.poll(handle):
        assert time.monotonic() < deadline, "poll() is never true"
    assert float(hvd.synchronize(handle).max()) == 2


def check_memory_of_input() -> None:
    """Check that the memory of an input is reused only after its operation has read it."""
    stream = torch.cuda.Stream()
    for number in range(10):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY_CYCLES // 10)
            x = torch.full((1 << 22,), 2.0, device="cuda")
            total = hvd.allreduce(x, op=hvd.Sum, name=f"freed{number}")
            del x
            garbage = torch.full((1 << 22,), 7.0, device="cuda")
        stream.synchronize()
        assert float(total.min()) == float(total.max()) == 2
        del garbage


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
    """Check that Horovod's optimizer gives the weights of an optimizer without Horovod."""
    model = net(kind)
    reference = net(kind)
    optimizer = hvd.DistributedOptimizer(
        make(model.parameters()), model.named_parameters(), **options
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    reference_optimizer = make(reference.parameters())
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        x = torch.randn(32, 64, generator=generator).cuda().to(kind)
        y = torch.randn(32, 10, generator=generator).cuda().to(kind)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        reference_optimizer.zero_grad()
        nn.functional.mse_loss(reference(x), y).backward()
        reference_optimizer.step()
    pairs = zip(model.parameters(), reference.parameters(), strict=True)
    worst = max(float(((mine - wanted).norm() / wanted.norm()).detach()) for mine, wanted in pairs)
    assert worst < (5e-2 if kind != torch.float32 or options else 1e-5), worst
    return f"weights differ by {worst:.1e}"


def check_channels_last_training() -> str:
    """Check that a convolution's gradients are reduced in the layout of its weights."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 2)).cuda()
    model = model.to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    model(torch.randn(4, 3, 8, 8, device="cuda")).sum().backward()
    before = model[0].weight.grad.clone()
    optimizer.step()
    assert model[0].weight.grad.is_contiguous(memory_format=torch.channels_last)
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
    x = torch.randn(4, 8, 5, 5, device="cuda")
    assert_close(sync(x.clone()), plain(x), torch.float16)
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
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.zero_grad()
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    optimizer.step()
    state.restore()
    assert all(
        torch.equal(before, after)
        for before, after in zip(parameters, model.parameters(), strict=True)
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def times_of_allreduce() -> dict[str, float]:
    """Return milliseconds of an allreduce in place, by bytes: the median of 30 after 5."""
    milliseconds = {}
    for size in (1 << 10, 1 << 20, 25_557_032):
        x = torch.randn(size, device="cuda")
        seconds = [seconds_of(partial(hvd.allreduce_, x, name=f"time{size}")) for _ in range(35)]
        milliseconds[str(4 * size)] = round(1e3 * statistics.median(seconds[5:]), 3)
    return milliseconds


def show_two_ranks(which: str) -> None:
    began = time.monotonic()
    hvd.init()
    try:
        torch.cuda.set_device(hvd.local_rank() if which == "own" else 0)
        ones = torch.full((1 << 20,), hvd.rank() + 1.0, device="cuda")
        total = hvd.allreduce(ones, op=hvd.Sum)
        torch.cuda.synchronize()
        seen = f"sum {float(total.min())} to {float(total.max())}"
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"[:700]
        raise
    finally:
        seconds = round(time.monotonic() - began, 2)
        if hvd.rank() == 1:
            print("RESULT", json.dumps({"rank 1 saw": seen, "seconds": seconds}), flush=True)


def check_all() -> int:
    start_horovod()
    for kind in (*FLOATS, *INTEGERS, *OTHERS):
        label = str(kind).partition(".")[2]
        if kind not in OTHERS:
            check(f"allreduce of {label}", partial(check_reductions, kind))
            check(f"reducescatter of {label}", partial(check_reducescatter, kind))
        check(f"allgather, broadcast, alltoall of {label}", partial(check_copies, kind))
    check("layouts", check_layouts)
    check("a result that another stream takes", check_other_stream)
    check("poll", check_poll)
    check("memory of an input", check_memory_of_input)
    check("barrier and join", lambda: (hvd.barrier(), hvd.join()) and "passed")
    check("SGD as one process", check_training)
    check(
        "Adam as one process",
        lambda: check_training(lambda parameters: torch.optim.Adam(parameters, 1e-3)),
    )
    check(
        "fused AdamW as one process",
        lambda: check_training(lambda parameters: torch.optim.AdamW(parameters, 1e-3, fused=True)),
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
    print_result(
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
    if sys.argv[1:]:
        show_two_ranks(sys.argv[2])
    else:
        sys.exit(check_all())
