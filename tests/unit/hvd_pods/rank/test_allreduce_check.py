"""The program that checks and times an allreduce, on a Horovod that adds up in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devtools.pods.program_copies import POD_PROGRAMS

# The clock continues by 7 s at each look. An MPI may end its process at exit: what is not written
# by then is lost.
HOROVOD = """
import atexit, itertools, os, time
clock = itertools.count(3, step=7)
time.monotonic = lambda: next(clock)
atexit.register(os._exit, 0)
Sum, calls = "sum", []
init = lambda: calls.append("init")
rank = lambda: {rank}
size = lambda: 3
allgather_object = lambda number: {answered}
def allreduce(tensor, op, name):
    assert calls[0] == "init" and op == Sum
    calls.append(name)
    if calls[-10:] == ["timed"] * 10:
        assert calls == ["init", "warm-up", *["timed"] * 10]
    return [value * {total} for value in tensor[:1]]
"""


def run(
    image: Path, arguments: list[str], rank: int = 0, total: int = 3, answered: str = "[0, 1, 2]"
) -> tuple[str, str]:
    """Run the program as each rank does, with a Horovod of three ranks; its output and errors."""
    (image / "torch.py").write_text("ones = lambda number: [1.0] * number\n")
    (image / "horovod").mkdir()
    text = HOROVOD.format(rank=rank, total=total, answered=answered)
    (image / "horovod" / "torch.py").write_text(text)
    command = [sys.executable, "-S", str(POD_PROGRAMS / "rank" / "allreduce_check.py"), *arguments]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(image)}, capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr


# Ten times in 7 s: 32 MiB in 0.7 s, of which each rank sends 2 * 2 / 3.
BANDWIDTH = "allreduce of 32 MiB over 3 ranks: 700.0 ms, bus bandwidth 61 MiB/s\n"


@pytest.mark.parametrize(
    ("arguments", "changes", "shown", "problem"),
    [
        ([], {}, "check: 3 ranks are connected\n", ""),
        ([], {"answered": "[0, 2]"}, "", "gathered [0, 2]"),
        (["bandwidth"], {}, BANDWIDTH, ""),
        (["bandwidth"], {"rank": 1}, "", ""),
        (["bandwidth"], {"total": 2}, "", " 3 ranks is 2.0"),
    ],
)
def test_allreduce_is_checked_and_timed(
    tmp_path: Path, arguments: list[str], changes: dict[str, Any], shown: str, problem: str
) -> None:
    output, errors = run(tmp_path, arguments, **changes)
    assert output == shown
    assert problem in errors if problem else not errors
