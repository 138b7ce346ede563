"""Shows in a worker what ranks do that keep the others waiting: `stacks.py RANK...`.

A rank writes its own Python stack, to its standard error, when it gets SIGNAL: a debugger would
need rights that a container does not have.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import basics
import ranks
from warm_wire import STACK_SIGNAL

STATES = {
    "T": "is stopped by a signal: something has sent it SIGSTOP",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file server, and cannot be interrupted",
}


def describe(script: ranks.Script) -> str:
    """Tell what a rank does; it writes its Python stack if it can."""
    state = STATES.get(basics.read_stat(script.pid)[0], "")
    if state:
        return state
    if not handles(script.pid):
        return "started cold and shows no Python stack"
    os.kill(script.pid, STACK_SIGNAL)
    return "writes its Python stack to its standard error"


def handles(pid: int) -> bool:
    """Whether a process has a handler for the signal, which would otherwise end it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (STACK_SIGNAL - 1) & 1)
    return False


def main() -> int:
    """Print a line for each rank of the command line."""
    running = {script.rank: script for script in ranks.running()}
    for rank in map(int, sys.argv[1:]):
        try:
            what = describe(running[rank]) if rank in running else "has ended"
        except OSError:
            what = "has ended"
        print(f"rank {rank} {what}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
