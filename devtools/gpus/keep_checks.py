"""ResNet-50 with `keep`: the cost of a commit, and the restored state after a kill.

`keep_checks cost` measures `keep.State.commit()` in each step and in each tenth.
`keep_checks restored` kills a training after a commit and continues from the state of `keep`. The
result must equal a training without a kill, bit for bit. `keep_checks train NAME UNTIL` is one of
its trainings.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import horovod.torch as hvd
import keep
import torch

from devtools.gpus.training import (
    BATCH_SIZES,
    compare_ways,
    make_resnet,
    median_milliseconds,
    print_result,
    random_batches,
    relative_cost,
    start_horovod,
    train_step,
)

OPTIMIZERS = {
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-3),
}
BLOCK_STEPS = 10
COST_TURNS = 6
# The steps of a training that is killed.
KILLED_TRAINING_STEPS = 6
STEPS_BEFORE_KILL = 3
# A folder for each of these trainings, in memory like a worker's.
KEPT = f"{keep.FOLDER}-killed"


def make(name: str) -> tuple[torch.nn.Module, Any]:
    model = make_resnet()
    optimizer = OPTIMIZERS[name](model.parameters())
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters())


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors of a state, in their order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_of(branch)


def measure(name: str, size: int) -> dict[str, Any]:
    model, optimizer = make(name)
    batches = random_batches(size)
    for batch in batches:
        train_step(model, optimizer, batch)
    state = keep.State(name=f"{name[:3]}-{size}", model=model, optimizer=optimizer)
    state.restore()
    calls: list[float] = []

    def commit() -> None:
        began = time.perf_counter()
        state.commit()
        calls.append(time.perf_counter() - began)

    def train(every: int) -> None:
        for number in range(BLOCK_STEPS):
            train_step(model, optimizer, batches[number % len(batches)])
            if every and number % every == every - 1:
                commit()

    for _ in range(4):
        commit()
    calls.clear()
    blocks = {"none": 0, "each step": 1, "each tenth step": 10}
    times = compare_ways(
        {way: partial(train, every) for way, every in blocks.items()}, COST_TURNS, BLOCK_STEPS
    )
    sizes = [
        tensor.numel() * tensor.element_size()
        for tensor in tensors_of([model.state_dict(), optimizer.state_dict()])
    ]
    result = {
        "tensors": len(sizes),
        "megabytes": round(sum(sizes) / 1e6, 1),
        "milliseconds of a step": {way: median_milliseconds(times[way]) for way in times},
        "milliseconds of a call": median_milliseconds(calls),
        "cost": {way: relative_cost(times[way], times["none"]) for way in times if way != "none"},
    }
    print(name, size, result, flush=True)
    return result


def measure_all() -> None:
    shutil.rmtree(keep.FOLDER, ignore_errors=True)
    start_horovod()
    torch.backends.cudnn.benchmark = True
    print_result(
        {
            f"{name}, batch {size}": measure(name, size)
            for name in OPTIMIZERS
            for size in BATCH_SIZES
        }
    )
    shutil.rmtree(keep.FOLDER, ignore_errors=True)
    os._exit(0)


def digest(tree: Any) -> str:
    """Return a checksum of all tensors of a state."""
    hasher = hashlib.sha256()
    for tensor in tensors_of(tree):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        hasher.update(flat.view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


def train(name: str, until: int) -> None:
    """Train to a step, from the kept state. Kill this process there, unless it is the last step."""
    start_horovod()
    torch.use_deterministic_algorithms(True, warn_only=True)
    model, optimizer = make(name)
    state = keep.State(model=model, optimizer=optimizer)
    begin = state.restore()
    digests = {}
    if begin:
        digests[begin] = digest([model.state_dict(), optimizer.state_dict()])
    for number in range(begin, until):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(32, 3, 224, 224, generator=generator).cuda()
        y = torch.randint(0, 1000, (32,), generator=generator).cuda()
        train_step(model, optimizer, (x.contiguous(memory_format=torch.channels_last), y))
        state.commit()
        if number + 1 in (STEPS_BEFORE_KILL, KILLED_TRAINING_STEPS):
            digests[number + 1] = digest([model.state_dict(), optimizer.state_dict()])
    torch.cuda.synchronize()
    # A commit is complete some milliseconds after the call.
    time.sleep(0.5)
    print("PART", json.dumps({"begin": begin, "digests": digests}), flush=True)
    if until < KILLED_TRAINING_STEPS:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def run(name: str, label: str, until: int) -> dict[str, Any]:
    """Train in a process. Raises SystemExit with its output if it does not come to the step."""
    command = [sys.executable, "-m", __spec__.name, "train", name, str(until)]
    # A run removes the kept state of other runs in its worker, and each process is a separate MPI
    # job.
    variables = {"HVD_KEEP": f"{KEPT}/{label}", "HVD_RUN_ID": "gpu", "TMPDIR": tempfile.mkdtemp()}
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("PART ")]
    if not lines:
        raise SystemExit(done.stdout + done.stderr)
    result: dict[str, Any] = json.loads(lines[0].removeprefix("PART "))
    return result


def kill_one(name: str) -> dict[str, Any]:
    """Train with a kill, and at the same time without one."""
    label = name.partition(" ")[0]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, name, f"{label}-whole", KILLED_TRAINING_STEPS)
        first = run(name, label, STEPS_BEFORE_KILL)["digests"]
        second = run(name, label, KILLED_TRAINING_STEPS)
        whole = future.result()["digests"]
    at = str(STEPS_BEFORE_KILL)
    end = str(KILLED_TRAINING_STEPS)
    return {
        "killed after step": STEPS_BEFORE_KILL,
        "went on after step": second["begin"],
        "restored what was committed": second["digests"].get(at) == first[at],
        "two trainings are equal at all": whole[at] == first[at],
        "ended as the training that nobody killed": second["digests"][end] == whole[end],
    }


def restore_all() -> None:
    shutil.rmtree(KEPT, ignore_errors=True)
    with ThreadPoolExecutor(len(OPTIMIZERS)) as pool:
        results = dict(zip(OPTIMIZERS, pool.map(kill_one, OPTIMIZERS), strict=True))
    print("RESULT", json.dumps(results), flush=True)
    shutil.rmtree(KEPT, ignore_errors=True)
    right = all(
        result["restored what was committed"] and result["went on after step"] == STEPS_BEFORE_KILL
        for result in results.values()
    )
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]))
    {"cost": measure_all, "restored": restore_all}[sys.argv[1]]()
