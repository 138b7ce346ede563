"""A rank ends as its script ends by hand, and tells the master what it has raised."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.hvd_pods.support.notices import Master
from tests.unit.hvd_pods.warm.worker import ONLY_RANK, Worker

pytestmark = pytest.mark.slow

CHAINED = """
import framework, sys
before = sys.excepthook
def show(*error):
    print("mine", file=sys.stderr)
    before(*error)
sys.excepthook = show
raise ValueError("x")
"""
CAUGHT = """
import framework, sys
try:
    raise ValueError("x")
except ValueError:
    sys.excepthook(*sys.exc_info())
"""
OF_A_FORK = """
import framework, os
child = os.fork()
if child == 0:
    raise ValueError("x")
os.waitpid(child, 0)
"""
NOTE = "import framework\nerror = ValueError('x')\nerror.add_note('y')\nraise error\n"
LAST = "import atexit, framework, sys\natexit.register(lambda: print(sys.last_value))\n1 / 0"
OWN = "import framework, sys\nsys.excepthook = lambda *a: print(a[:2], a[2].tb_lineno)\n1 / 0"
# Scripts, and what the master is told of ranks that start anew; forks tell it of more.
SCRIPTS = {
    "uncaught": (
        "import framework\ndef train(batch):\n    raise ValueError(f'no labels in\\n{batch}')\n"
        "train(7)\n",
        "ValueError: no labels in, train.py:3",
    ),
    "syntax": ("import framework\n(\n", "SyntaxError: '(' was never closed, train.py:2"),
    "note": (NOTE, "ValueError: x, train.py:4"),
    "long": (
        f"import framework\nraise KeyError({'ü' * 900!r})\n",
        f"KeyError: '{'ü' * 489}, train.py:2",
    ),
    "chained hook": (CHAINED, "ValueError: x, train.py:8"),
    "at exit": (LAST, "ZeroDivisionError: division by zero, train.py:3"),
    "own hook": (OWN, None),
    "caught": (CAUGHT, None),
    "of a fork": (OF_A_FORK, None),
    "interrupted": ("import framework\nraise KeyboardInterrupt\n", None),
    "exit": ("import framework\nraise SystemExit('x')\n", None),
}
REPORTED_BY_FORKS = {
    "own hook": "ZeroDivisionError: division by zero, train.py:3",
    "interrupted": "KeyboardInterrupt, train.py:2",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_rank_ends_as_by_hand_and_the_master_is_notified_of_what_it_raised(
    either_worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    worker = either_worker
    master = Master(monkeypatch)
    script, reported = SCRIPTS[name]
    if worker.socket.exists():
        reported = REPORTED_BY_FORKS.get(name, reported)
    (tmp_path / "train.py").write_text(script)
    done = worker.run("python3", "train.py", cwd=tmp_path, variables=master.variables)
    environment = {**worker.environment(), **ONLY_RANK, **master.variables}
    alone = subprocess.run(
        [sys.executable, "train.py"],
        check=False,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
    )
    own_line, _, output = done.stdout.partition(b"\n")
    assert own_line.startswith(b"[hvd] rank 0 of 1 on ")
    assert (done.returncode, output, done.stderr) == (
        alone.returncode,
        alone.stdout,
        alone.stderr,
    )
    of = {"worker": socket.gethostname(), "rank": 0}
    expected = [{**of, "kind": "raised", "text": reported}] if reported else []
    ended = {"kind": "failed", "status": done.returncode}
    expected.append({**of, **(ended if done.returncode else {"kind": "finished"})})
    assert master.all(len(expected)) == expected


def test_rank_ends_as_ever_where_no_master_listens(either_worker: Worker) -> None:
    variables = {"HVD_FENCE": "7", "HVD_NOTICES": "127.0.0.1,1,secret"}
    done = either_worker.run("python3", "-c", "raise ValueError('x')", variables=variables)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "ValueError: x"
