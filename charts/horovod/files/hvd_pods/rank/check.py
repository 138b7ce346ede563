"""The program that ranks run when no command is given: checks that they can reach one another."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def import_horovod() -> Any:
    """Return Horovod's module for the framework of this image."""
    for framework in ("tensorflow", "torch"):
        if importlib.util.find_spec(framework):
            return importlib.import_module(f"horovod.{framework}")
    sys.exit("check: the image has neither TensorFlow nor PyTorch")


def main() -> None:
    """Gather the numbers of all ranks and exit with a message when one is missing."""
    hvd = import_horovod()
    hvd.init()
    ranks = hvd.allgather_object(hvd.rank())
    if ranks != list(range(hvd.size())):
        sys.exit(f"check: gathered {ranks}, expected every rank from 0 to {hvd.size() - 1}")
    if hvd.rank() == 0:
        print(f"check: {hvd.size()} ranks are connected", flush=True)


if __name__ == "__main__":
    main()
