"""What a rank has raised is told to the master."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.unit.hvd_pods.notices import Master
from tests.unit.hvd_pods.warm.worker import Worker

pytestmark = pytest.mark.slow


RAISES = """
import framework
def train(batch):
    raise ValueError(f"no labels in\\n{batch}")
train(7)
"""


@pytest.mark.parametrize("worker", ["warm_worker", "cold_worker"])
@pytest.mark.parametrize(
    ("program", "text"),
    [
        (RAISES, "ValueError: no labels in, train.py:4"),
        ("import framework\n(\n", "SyntaxError: '(' was never closed, train.py:2"),
        (
            "import framework\n\nframework.variables = []\nframework.variables()\n",
            "TypeError: 'list' object is not callable, train.py:4 (a script for Keras 2 needs "
            "TF_USE_LEGACY_KERAS=1 in worker.env: docs/runtime.md)",
        ),
        ("import framework\nraise SystemExit(1)\n", None),
        (
            "import framework\nerror = ValueError('x')\nerror.add_note('y')\nraise error\n",
            "ValueError: x, train.py:4",
        ),
        (
            f"import framework\nraise KeyError({'ü' * 900!r})\n",
            f"KeyError: '{'ü' * 489}, train.py:2",
        ),
    ],
)
def test_master_is_told_what_a_rank_raised(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worker: str,
    program: str,
    text: str | None,
) -> None:
    master = Master(monkeypatch)
    (tmp_path / "train.py").write_text(program)
    started: Worker = request.getfixturevalue(worker)
    done = started.run("python3", "train.py", cwd=tmp_path, variables=master.variables)
    assert done.returncode == 1
    assert b"start cold" not in done.stdout
    of = {"host": socket.gethostname(), "rank": 0}
    raised = [{**of, "kind": "raised", "text": text}] if text else []
    assert master.all(len(raised) + 1) == [*raised, {**of, "kind": "failed", "status": 1}]


@pytest.mark.parametrize("worker", ["warm_worker", "cold_worker"])
def test_rank_ends_as_ever_where_no_master_listens(
    request: pytest.FixtureRequest, worker: str
) -> None:
    variables = {"HVD_EPOCH": "7", "HVD_NOTICES": "127.0.0.1,1,secret"}
    started: Worker = request.getfixturevalue(worker)
    done = started.run("python3", "-c", "raise ValueError('x')", variables=variables)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "ValueError: x"
