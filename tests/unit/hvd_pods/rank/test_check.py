"""The programs that check and time an allreduce, on a Horovod that adds up in this process."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from hvd_pods.rank import bandwidth, check
from tests.unit.hvd_pods.copies import PROGRAMS

HOROVOD = """
import builtins
Sum = "sum"
calls = []
ranks, answered, total = {ranks}, {answered}, {total}
init = lambda: calls.append("init")
rank = lambda: {rank}
size = lambda: ranks
allgather_object = lambda number: answered
def allreduce(tensor, op, name):
    assert calls[0] == "init" and op == Sum
    calls.append(name)
    return [value * total for value in tensor[:1]]
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of Python packages, with no framework outside of it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda name: find(name) if (tmp_path / f"{name}.py").exists() else None,
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    # What the programs import from the folder is gone at the end.
    with patch.dict(sys.modules):
        for name in ("tensorflow", "torch", "horovod", "horovod.tensorflow", "horovod.torch"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        yield tmp_path


def install(
    image: Path,
    framework: str,
    ranks: int,
    answered: object = None,
    total: float = 0,
    rank: int = 0,
) -> None:
    """Write a framework and its Horovod, whose ranks answer so."""
    (image / f"{framework}.py").write_text("ones = lambda number: [1.0] * number\n")
    (image / "horovod").mkdir(exist_ok=True)
    answered = list(range(ranks)) if answered is None else answered
    text = HOROVOD.format(ranks=ranks, answered=answered, total=total or ranks, rank=rank)
    (image / "horovod" / f"{framework}.py").write_text(text)


def test_check_fails_when_a_rank_is_missing(image: Path) -> None:
    install(image, "torch", 4, answered=[0, 1, 2])
    with pytest.raises(SystemExit) as failed:
        check.main()
    assert "gathered [0, 1, 2], expected every rank from 0 to 3" in str(failed.value)


@pytest.mark.parametrize("rank", [0, 1])
def test_bandwidth_is_printed_once(
    image: Path, rank: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(image, "torch", 3, rank=rank)
    clock = itertools.count(3, step=7)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    bandwidth.main()
    # Ten times in 7 s: 32 MiB in 0.7 s, of which each rank sends 2 * 2 / 3.
    expected = "allreduce of 32 MiB over 3 ranks: 700.0 ms, bus bandwidth 61 MiB/s\n"
    assert capsys.readouterr().out == ("" if rank else expected)
    assert sys.modules["horovod.torch"].calls == ["init", "warm-up", *["timed"] * 10]


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("rank/check.py", "check: 2 ranks are connected"),
        ("rank/bandwidth.py", "allreduce of 32 MiB over 2 ranks"),
    ],
)
def test_program_runs_as_a_script(image: Path, program: str, printed: str) -> None:
    """As every rank starts it, with whichever folder it is in."""
    install(image, "torch", 2)
    with (image / "horovod" / "torch.py").open("a") as file:
        # An MPI that ends its process at exit: what is not written then is lost.
        file.write("import atexit, os\natexit.register(os._exit, 0)\n")
    command = [sys.executable, str(PROGRAMS / program)]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(image)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(printed)


def test_wrong_sum_is_an_error(image: Path) -> None:
    install(image, "torch", 4, total=3)
    with pytest.raises(SystemExit) as failed:
        bandwidth.main()
    assert "the sum of a 1 from each of 4 ranks is 3.0" in str(failed.value)
