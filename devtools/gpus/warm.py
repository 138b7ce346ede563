"""Warm ranks on a GPU: the worker's warm process and the start of a rank, outside of a pod."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from devtools.common.waiting import wait_until
from devtools.gpus.stages import PROJECT
from devtools.pods.warm_worker import WarmWorker, is_alive, warm_process, worker_root

ROUNDS = 4
# The parts of a rank's start.
PARTS = ("script", "imports", "hvd.init", "CUDA context", "first allreduce")
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
import time
began = time.time()
import json, os, sys
import torch
import horovod.torch as hvd
imported = time.time()
hvd.init()
ready = time.time()
assert not torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()
torch.cuda.set_device(hvd.local_rank())
x = torch.full((1 << 20,), 3.0, device="cuda")
torch.cuda.synchronize()
context = time.time()
y = hvd.allreduce(x, op=hvd.Sum, name="first")
torch.cuda.synchronize()
reduced = time.time()
assert float(y.min()) == float(y.max()) == 3.0 * hvd.size(), y
import warm_name
print("TIMES " + json.dumps({
    "script": began, "imports": imported, "hvd.init": ready, "CUDA context": context,
    "first allreduce": reduced, "forked": warm_name.PID != os.getpid(), "pid": os.getpid(),
    "nccl": "libnccl" in open("/proc/self/maps").read()}), flush=True)
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
"""


def memory_in_use() -> str:
    """Return MiB of the GPU's memory in use, and its processes."""
    used = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    users = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    answers = [
        subprocess.run(each, capture_output=True, text=True, check=False).stdout.strip()
        for each in (used, users)
    ]
    return f"{answers[0]}, processes: {answers[1] or 'none'}"


class GpuWorker(WarmWorker):
    def environment(self) -> dict[str, str]:
        own = super().environment()
        # Leave out the project's folder: its own programs are at the paths of a pod.
        brought_paths = os.environ.get("PYTHONPATH", "").split(":")
        paths = [str(self.modules), *(path for path in brought_paths if path != str(PROJECT))]
        brought = {
            name: os.environ[name]
            for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "LD_PRELOAD")
            if os.environ.get(name)
        }
        return {**own, **brought, "PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "8"}

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
        """Return seconds of each part of a rank's start. Raises SystemExit where it fails."""
        began = time.time()
        output, _ = self.launch().communicate(timeout=60)
        times = times_in(output)
        found: dict[str, Any] = {"forked": times["forked"], "nccl": times["nccl"]}
        last = began
        for part in PARTS:
            found[part] = times[part] - last
            last = times[part]
        found[TOTAL] = last - began
        return found


def times_in(output: str) -> dict[str, Any]:
    for line in output.splitlines():
        if "TIMES " in line:
            found: dict[str, Any] = json.loads(line.partition("TIMES ")[2])
            return found
    raise SystemExit(f"the rank printed no times: {output[-1500:]}")


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of seconds, and how many ranks were forks and had loaded NCCL."""
    totals = [row[TOTAL] for row in rows]
    return {
        **{
            part: round(statistics.median(row[part] for row in rows), 3) for part in (*PARTS, TOTAL)
        },
        "range": [round(min(totals), 3), round(max(totals), 3)],
        "forked": sum(row["forked"] for row in rows),
        "loaded NCCL": sum(row["nccl"] for row in rows),
        "ranks": len(rows),
    }


def end_one(worker: GpuWorker, *, client: bool) -> dict[str, Any]:
    """Kill a rank that holds memory of the GPU, or its client, as after the loss of the master."""
    process = worker.launch("60")
    assert process.stdout is not None
    line = next(line for line in process.stdout if "TIMES " in line)
    rank = times_in(line)["pid"]
    used = memory_in_use()
    began = time.monotonic()
    if client:
        process.kill()
    else:
        os.kill(rank, 9)
    wait_until(lambda: not is_alive(rank), 20, "the rank ends")
    seconds = round(time.monotonic() - began, 3)
    process.communicate()
    return {"memory while it ran": used, "seconds to its end": seconds}


def main() -> None:
    found: dict[str, Any] = {"memory before": memory_in_use()}
    with worker_root({"warm_name": WARM_NAME, "uses_gpu": TOUCHES_GPU}) as root:
        worker = GpuWorker(root)
        found["cold"] = summarize([worker.time_rank() for _ in range(ROUNDS)])
        print("cold", found["cold"], flush=True)
        with warm_process(worker, PRELOAD):
            found["memory while the warm process waits"] = memory_in_use()
            worker.time_rank()
            found["warm"] = summarize([worker.time_rank() for _ in range(ROUNDS)])
            print("warm", found["warm"], flush=True)
            found["killed rank"] = end_one(worker, client=False)
            after = worker.time_rank()
            found["next rank after it"] = round(after[TOTAL], 3)
            found["killed client"] = end_one(worker, client=True)
            began = time.monotonic()
            wait_until(lambda: memory_in_use().startswith("0 MiB"), 20, "the GPU's memory is free")
            found["seconds until the memory is free"] = round(time.monotonic() - began, 2)
        # A module that opens the GPU during its import: ranks start cold, and the log gives the
        # reason.
        worker.socket.unlink(missing_ok=True)
        with warm_process(worker, (*PRELOAD, "uses_gpu")):
            one = worker.time_rank()
            found["a preloaded module opens the GPU"] = {
                "forked": one["forked"],
                "log": worker.log.splitlines()[-3:],
            }
    print("RESULT", json.dumps(found), flush=True)
    good = found["warm"]["forked"] == ROUNDS and found["warm"]["loaded NCCL"] == ROUNDS
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
