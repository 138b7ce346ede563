"""Warm ranks on a GPU: the worker's warm process and the start of a rank, outside of a pod."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from devtools.common.repository import ROOT
from devtools.common.waiting import wait_until
from devtools.pods.warm_worker import WarmWorker, is_alive, warm_process, worker_root

STARTS = 4
TOTAL = "start to first allreduce"
# The variables of the only rank, as mode direct sets them.
ONLY_RANK = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_CROSS_RANK": "0",
    "HOROVOD_CROSS_SIZE": "1",
    "HOROVOD_HOSTNAME": "localhost",
    "HOROVOD_LOCAL_RANK": "0",
    "HOROVOD_LOCAL_SIZE": "1",
    "HOROVOD_RANK": "0",
    "HOROVOD_SIZE": "1",
    "HVD_SLOTS": "1",
}
PRELOAD = ("warm_name", "torch", "horovod.torch")
# The warm process imports this module first. Its process number shows whether a rank is a fork of
# it.
WARM_NAME = "import os\nPID = os.getpid()\n"
TOUCHES_GPU = "import torch\ntorch.zeros(1, device='cuda')\n"
SCRIPT = """
import json, os, sys, time
import torch
import horovod.torch as hvd
hvd.init()
assert not torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()
torch.cuda.set_device(hvd.local_rank())
x = torch.full((1 << 20,), 3.0, device="cuda")
y = hvd.allreduce(x, op=hvd.Sum, name="first")
torch.cuda.synchronize()
reduced = time.time()
assert float(y.min()) == float(y.max()) == 3.0 * hvd.size(), y
import warm_name
print("STARTED " + json.dumps({
    "reduced": reduced, "forked": warm_name.PID != os.getpid(), "pid": os.getpid(),
    "nccl": "libnccl" in open("/proc/self/maps").read()}), flush=True)
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
"""


def memory_in_use() -> str:
    """Return the GPU's memory in use, such as "0 MiB"."""
    used = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    return subprocess.run(used, capture_output=True, text=True, check=False).stdout.strip()


class GpuWorker(WarmWorker):
    def environment(self) -> dict[str, str]:
        variables = super().environment()
        # Leave out the project's folder: its own programs are at the paths of a pod.
        brought_paths = os.environ.get("PYTHONPATH", "").split(":")
        paths = [str(self.modules), *(path for path in brought_paths if path != str(ROOT))]
        brought = {
            name: os.environ[name]
            for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "LD_PRELOAD")
            if os.environ.get(name)
        }
        return {**variables, **brought, "PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "8"}

    def launch(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a rank. Return its client."""
        script = self.root / "train.py"
        script.write_text(SCRIPT)
        return subprocess.Popen(
            self.command("python3", str(script), *arguments),
            env={**self.environment(), **ONLY_RANK},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def time_rank(self) -> dict[str, Any]:
        """Return what a rank says of its start, with its seconds. Raises SystemExit where it
        fails.
        """
        began = time.time()
        output, _ = self.launch().communicate(timeout=60)
        rank = rank_in(output)
        return {**rank, TOTAL: rank["reduced"] - began}


def rank_in(output: str) -> dict[str, Any]:
    for line in output.splitlines():
        if "STARTED " in line:
            start: dict[str, Any] = json.loads(line.partition("STARTED ")[2])
            return start
    raise SystemExit(f"the rank did not reduce: {output[-1500:]}")


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of the seconds, and how many ranks were forks and had loaded NCCL."""
    totals = [row[TOTAL] for row in rows]
    return {
        TOTAL: round(statistics.median(totals), 3),
        "range": [round(min(totals), 3), round(max(totals), 3)],
        "forked": sum(row["forked"] for row in rows),
        "loaded NCCL": sum(row["nccl"] for row in rows),
    }


def end_one(worker: GpuWorker, *, client: bool) -> None:
    """Kill a rank that holds memory of the GPU, or its client, as after the loss of the master."""
    process = worker.launch("60")
    assert process.stdout is not None
    line = next(line for line in process.stdout if "STARTED " in line)
    rank = rank_in(line)["pid"]
    if client:
        process.kill()
    else:
        os.kill(rank, 9)
    wait_until(lambda: not is_alive(rank), 20, "the rank ends")
    process.communicate()


def main() -> None:
    result: dict[str, Any] = {}
    with worker_root({"warm_name": WARM_NAME, "uses_gpu": TOUCHES_GPU}) as root:
        worker = GpuWorker(root)
        result["cold"] = summarize([worker.time_rank() for _ in range(STARTS)])
        print("cold", result["cold"], flush=True)
        with warm_process(worker, PRELOAD):
            result["memory while the warm process waits"] = memory_in_use()
            worker.time_rank()
            result["warm"] = summarize([worker.time_rank() for _ in range(STARTS)])
            print("warm", result["warm"], flush=True)
            end_one(worker, client=False)
            worker.time_rank()
            end_one(worker, client=True)
            began = time.monotonic()
            wait_until(lambda: memory_in_use() == "0 MiB", 20, "the GPU's memory is free")
            result["seconds until the memory is free"] = round(time.monotonic() - began, 2)
        # After a module that opens the GPU during its import, ranks start cold.
        worker.socket.unlink(missing_ok=True)
        with warm_process(worker, (*PRELOAD, "uses_gpu")):
            assert not worker.time_rank()["forked"], worker.log
    print("RESULT", json.dumps(result), flush=True)
    good = result["warm"]["forked"] == STARTS and result["warm"]["loaded NCCL"] == STARTS
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
