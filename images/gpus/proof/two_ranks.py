"""Two ranks on a machine with one GPU, as a user meets them: `two_ranks own|same`.

own: each rank selects the GPU of its local rank, of which the second is missing. same: both select
the first one.
"""

from __future__ import annotations

import json
import sys
import time

import horovod.torch as hvd
import torch


def main() -> None:
    began = time.monotonic()
    hvd.init()
    try:
        torch.cuda.set_device(hvd.local_rank() if sys.argv[1] == "own" else 0)
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


if __name__ == "__main__":
    main()
