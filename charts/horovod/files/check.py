"""What the ranks run when no command is given: an allreduce over all of them, checked."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def framework() -> Any:
    """Horovod's module for the framework of this image."""
    for name in ("tensorflow", "torch"):
        if importlib.util.find_spec(name):
            return importlib.import_module(f"horovod.{name}")
    sys.exit("check: the image has neither TensorFlow nor PyTorch")


def main() -> None:
    """Sum the ranks' numbers and compare with what the sum must be."""
    hvd = framework()
    hvd.init()
    ranks = hvd.allgather_object(hvd.rank())
    if ranks != list(range(hvd.size())):
        sys.exit(f"check: gathered {ranks}, expected every rank from 0 to {hvd.size() - 1}")
    if hvd.rank() == 0:
        print(f"check: {hvd.size()} ranks reached one another", flush=True)


if __name__ == "__main__":
    main()
