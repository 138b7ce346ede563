"""A rank that starts cold ends as its script ends by hand, and tells the master why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.hvd_pods.notices import Master
from tests.unit.hvd_pods.warm.worker import ONLY_RANK, Worker

pytestmark = pytest.mark.slow

# Each raises this in its last line, if it is told.
TOLD = "ValueError: x, train.py:"
CHAINED = """
import sys
before = sys.excepthook
def show(*error):
    print("mine", file=sys.stderr)
    before(*error)
sys.excepthook = show
raise ValueError("x")
"""
OF_PYTHON = """
import sys
assert sys.excepthook is sys.__excepthook__
sys.excepthook = lambda *error: sys.__excepthook__(*error)
raise ValueError("x")
"""
OWN = """
import sys
sys.excepthook = lambda kind, error, trace: print(error, file=sys.stderr)
raise ValueError("x")
"""
FAILS_ITSELF = """
import sys
def show(*error):
    raise TypeError("in the hook")
sys.excepthook = show
raise ValueError("x")
"""
CAUGHT = """
import sys
try:
    raise ValueError("x")
except ValueError:
    sys.excepthook(*sys.exc_info())
"""
OF_A_FORK = """
import os
child = os.fork()
if child == 0:
    raise ValueError("x")
os.waitpid(child, 0)
"""
OF_A_THREAD = """
import threading
def fail():
    raise ValueError("x")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
"""
# As when the user interrupts the rank while it sends the notice.
INTERRUPTED = """
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "hvd_pods":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
raise ValueError("x")
"""
DEEP = """
def call(number):
    return call(number + 1)
call(1)
"""
SCRIPTS = {
    "uncaught": ('print("y")\nraise ValueError("x")\n', TOLD + "2"),
    "chained": (CHAINED, TOLD + "8"),
    "of Python": (OF_PYTHON, TOLD + "5"),
    "own": (OWN, None),
    "fails itself": (FAILS_ITSELF, None),
    "caught": (CAUGHT, None),
    "of a fork": (OF_A_FORK, None),
    "of a thread": (OF_A_THREAD, None),
    "interrupted notice": (INTERRUPTED, None),
    "deep": (DEEP, "RecursionError: maximum recursion depth exceeded, train.py:3"),
    "interrupted": ("raise KeyboardInterrupt\n", None),
    "exit": ("raise SystemExit('x')\n", None),
}


@pytest.mark.parametrize(("script", "told"), SCRIPTS.values(), ids=SCRIPTS)
def test_rank_ends_as_by_hand(
    cold_worker: Worker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    told: str | None,
) -> None:
    master = Master(monkeypatch)
    (tmp_path / "train.py").write_text(script)
    done = cold_worker.run(sys.executable, "train.py", cwd=tmp_path, variables=master.variables)
    environment = {**cold_worker.environment(), **ONLY_RANK, **master.variables}
    alone = subprocess.run(
        [sys.executable, "train.py"], check=False, env=environment, cwd=tmp_path,
        capture_output=True,
    )  # fmt: skip
    own_line, _, output = done.stdout.partition(b"\n")
    assert own_line.startswith(b"[hvd] rank 0 of 1 on ")
    assert (done.returncode, output, done.stderr) == (
        alone.returncode, alone.stdout, alone.stderr,
    )  # fmt: skip
    notices = list(master.taken.queue)
    assert [notice["text"] for notice in notices if notice["kind"] == "raised"] == [
        text for text in [told] if text
    ]
