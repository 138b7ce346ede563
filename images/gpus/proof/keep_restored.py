"""Kill a training after a commit and go on from what `keep` has, bit for bit as one without a kill.

`keep_restored` runs the three trainings; `keep_restored train NAME UNTIL KEPT` is one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("HVD_RUN_ID", "gpu-proof")
# cuBLAS is deterministic with this.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import horovod.torch as hvd
import keep
import torch

from images.gpus.proof.helpers import resnet, start, step

STEPS = 6
KILLED_AFTER = 3
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


def train(name: str, until: int, *, kept: bool) -> None:
    """Train to a step, from what is kept; kill this process there, unless it is the last step."""
    start()
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = resnet()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[name](model.parameters()), model.named_parameters()
    )
    if not kept:
        shutil.rmtree(keep.FOLDER, ignore_errors=True)
    state = keep.State(model=model, optimizer=optimizer)
    begin = state.restore()
    digests = {}
    if begin:
        digests[begin] = digest([model.state_dict(), optimizer.state_dict()])
    for number in range(begin, until):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(32, 3, 224, 224, generator=generator).cuda()
        y = torch.randint(0, 1000, (32,), generator=generator).cuda()
        step(model, optimizer, (x.contiguous(memory_format=torch.channels_last), y))
        digests[number + 1] = digest([model.state_dict(), optimizer.state_dict()])
        state.commit()
    torch.cuda.synchronize()
    # A commit is complete some milliseconds after the call.
    time.sleep(0.5)
    result = {"begin": begin, "digests": digests, "loss": "finite"}
    print("PART", json.dumps(result), flush=True)
    if until < STEPS:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def run(name: str, until: int, *, kept: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, "train", name, str(until), str(int(kept))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("PART ")]
    if not lines:
        raise SystemExit(done.stdout + done.stderr)
    found: dict[str, Any] = json.loads(lines[0].removeprefix("PART "))
    return found


def main() -> None:
    if len(sys.argv) > 1:
        train(sys.argv[2], int(sys.argv[3]), kept=sys.argv[4] == "1")
    found = {}
    for name in OPTIMIZERS:
        whole = run(name, STEPS, kept=False)["digests"]
        first = run(name, KILLED_AFTER, kept=False)["digests"]
        second = run(name, STEPS, kept=True)
        at = str(KILLED_AFTER)
        found[name] = {
            "killed after step": KILLED_AFTER,
            "went on after step": second["begin"],
            "restored what was committed": second["digests"].get(at) == first[at],
            "two trainings are equal at all": whole[at] == first[at],
            "ended as the training that nobody killed": second["digests"][str(STEPS)]
            == whole[str(STEPS)],
        }
        print(name, found[name], flush=True)
    print("RESULT", json.dumps(found), flush=True)
    shutil.rmtree(keep.FOLDER, ignore_errors=True)
    right = all(
        one["restored what was committed"] and one["went on after step"] == KILLED_AFTER
        for one in found.values()
    )
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
