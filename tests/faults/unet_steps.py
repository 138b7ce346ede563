"""Trains the U-Net of the examples' image, and writes what the tests of faults read.

    python3 unet_steps.py --steps 120 --filters 4

The options are those of /examples/unet.py. As train.py, it writes a line for each rank, for each
step of rank 0, and for the result.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import horovod.tensorflow as hvd
from train import tell_rank, write_line

sys.path.insert(0, "/examples")
import unet

REPORTED = ("ranks", "ranks_agree", "resumed_after_step", "dice", "weights")


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train as the example does, and tell more of it."""
    start = tell_rank()

    def tell_step(step: int, *_: Any) -> None:
        if hvd.rank() == 0:
            write_line("steps.jsonl", step=step, start=start)

    unet.report = tell_step
    result: dict[str, Any] = example(options)
    if hvd.rank() == 0:
        reported = {name: result[name] for name in REPORTED}
        write_line("result.jsonl", step=result["steps"], **reported)
    return result


if __name__ == "__main__":
    example = unet.train
    unet.train = train
    sys.exit(unet.main())
