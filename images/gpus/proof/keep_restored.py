"""Kill a training after a commit and go on from what `keep` has, bit for bit as one without a kill.

`keep_restored` runs the trainings, those of different runs at the same time; `keep_restored train
NAME UNTIL` is one of them.
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
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# cuBLAS is deterministic with this.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import horovod.torch as hvd
import keep
import torch

from images.gpus.proof.helpers import resnet, start, step

STEPS = 6
KILLED_AFTER = 3
# A folder for each training, in memory as that of a worker.
KEPT = f"{keep.FOLDER}-proof"
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 1e-3),
}


def digest(tree: Any) -> str:
    """A checksum of all tensors of a state."""
    found = hashlib.sha256()

    def add(node: Any) -> None:
        if isinstance(node, torch.Tensor):
            flat = node.detach().cpu().contiguous().reshape(-1)
            found.update(flat.view(torch.uint8).numpy().tobytes())
        elif isinstance(node, dict):
            for each in node.values():
                add(each)
        elif isinstance(node, (list, tuple)):
            for each in node:
                add(each)

    add(tree)
    return found.hexdigest()


def train(name: str, until: int) -> None:
    """Train to a step, from what is kept; kill this process there, unless it is the last step."""
    began = time.monotonic()
    start()
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = resnet()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[name](model.parameters()), model.named_parameters()
    )
    state = keep.State(model=model, optimizer=optimizer)
    begin = state.restore()
    restored = time.monotonic()
    digests = {}
    if begin:
        digests[begin] = digest([model.state_dict(), optimizer.state_dict()])
    for number in range(begin, until):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(32, 3, 224, 224, generator=generator).cuda()
        y = torch.randint(0, 1000, (32,), generator=generator).cuda()
        step(model, optimizer, (x.contiguous(memory_format=torch.channels_last), y))
        state.commit()
        if number + 1 in (KILLED_AFTER, STEPS):
            digests[number + 1] = digest([model.state_dict(), optimizer.state_dict()])
    torch.cuda.synchronize()
    # A commit is complete some milliseconds after the call.
    time.sleep(0.5)
    seconds = {"to restore": restored - began, "to train": time.monotonic() - restored}
    print("PART", json.dumps({"begin": begin, "digests": digests, "seconds": seconds}), flush=True)
    if until < STEPS:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def run(name: str, label: str, until: int) -> dict[str, Any]:
    """Train in a process. Raises SystemExit with its output if it does not come to the step."""
    began = time.monotonic()
    command = [sys.executable, "-m", __spec__.name, "train", name, str(until)]
    # A run removes what others have kept in its worker; and each process is one of MPI of its own.
    own = {"HVD_KEEP": f"{KEPT}/{label}", "HVD_RUN_ID": "proof", "TMPDIR": tempfile.mkdtemp()}
    done = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("PART ")]
    if not lines:
        raise SystemExit(done.stdout + done.stderr)
    found: dict[str, Any] = json.loads(lines[0].removeprefix("PART "))
    print(label, until, found["seconds"], f"{time.monotonic() - began:.1f} s", flush=True)
    return found


def compare(name: str) -> dict[str, Any]:
    """Train without a kill, and beside it with one."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, name, f"{name}-whole", STEPS)
        first = run(name, name, KILLED_AFTER)["digests"]
        second = run(name, name, STEPS)
        whole = future.result()["digests"]
    at = str(KILLED_AFTER)
    return {
        "killed after step": KILLED_AFTER,
        "went on after step": second["begin"],
        "restored what was committed": second["digests"].get(at) == first[at],
        "two trainings are equal at all": whole[at] == first[at],
        "ended as the training that nobody killed": second["digests"][str(STEPS)]
        == whole[str(STEPS)],
    }


def main() -> None:
    if len(sys.argv) > 1:
        train(sys.argv[2], int(sys.argv[3]))
    shutil.rmtree(KEPT, ignore_errors=True)
    with ThreadPoolExecutor(len(OPTIMIZERS)) as pool:
        found = dict(zip(OPTIMIZERS, pool.map(compare, OPTIMIZERS), strict=True))
    print("RESULT", json.dumps(found), flush=True)
    shutil.rmtree(KEPT, ignore_errors=True)
    right = all(
        one["restored what was committed"] and one["went on after step"] == KILLED_AFTER
        for one in found.values()
    )
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
