"""The programs that check and time an allreduce, on a Horovod that adds up in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.hvd_pods.copies import PROGRAMS

# The clock goes on by 7 s at each look. An MPI may end its process at exit: what is not written
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
    image: Path, program: str, rank: int = 0, total: int = 3, answered: str = "[0, 1, 2]"
) -> tuple[str, str]:
    """Run a program as each rank does, with a Horovod of three ranks; its output and errors."""
    (image / "torch.py").write_text("ones = lambda number: [1.0] * number\n")
    (image / "horovod").mkdir()
    text = HOROVOD.format(rank=rank, total=total, answered=answered)
    (image / "horovod" / "torch.py").write_text(text)
    command = [sys.executable, "-S", str(PROGRAMS / program)]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(image)}, capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr


def test_check_succeeds_when_all_ranks_answer(tmp_path: Path) -> None:
    assert run(tmp_path, "rank/check.py") == ("check: 3 ranks are connected\n", "")


def test_check_fails_when_a_rank_is_missing(tmp_path: Path) -> None:
    output, errors = run(tmp_path, "rank/check.py", answered="[0, 2]")
    assert output == ""
    assert "gathered [0, 2], expected every rank from 0 to 2" in errors


@pytest.mark.parametrize("rank", [0, 1])
def test_bandwidth_is_printed_once(tmp_path: Path, rank: int) -> None:
    # Ten times in 7 s: 32 MiB in 0.7 s, of which each rank sends 2 * 2 / 3.
    expected = "allreduce of 32 MiB over 3 ranks: 700.0 ms, bus bandwidth 61 MiB/s\n"
    assert run(tmp_path, "rank/bandwidth.py", rank=rank) == ("" if rank else expected, "")


@pytest.mark.slow
def test_wrong_sum_is_an_error(tmp_path: Path) -> None:
    output, errors = run(tmp_path, "rank/bandwidth.py", total=2)
    assert output == ""
    assert "the sum of a 1 from each of 3 ranks is 2.0" in errors
