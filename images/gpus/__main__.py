"""`python -m images.gpus bundle [--wheel FILE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from devtools.common.errors import DevtoolsError
from devtools.common.ui import show_error
from images.gpus.bundle import write_bundle


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m images.gpus")
    commands = parser.add_subparsers(required=True, dest="command")
    bundle = commands.add_parser("bundle", help="write what a GPU machine without a network needs")
    bundle.add_argument("--wheel", type=Path, help="Horovod for that machine; it compiles without")
    options = parser.parse_args()
    try:
        write_bundle(options.wheel)
    except DevtoolsError as error:
        show_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
