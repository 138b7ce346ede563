"""What a rank has raised is told to the master."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import notice_server
import pytest

from tests.unit.podfiles.warm.worker import Worker

pytestmark = pytest.mark.slow


RAISES = """
import framework
def train(batch):
    raise ValueError(f"no labels in\\n{batch}")
train(7)
"""


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
            f"import framework\nraise KeyError({'ü' * 900!r})\n",
            f"KeyError: '{'ü' * 489}, train.py:2",
        ),
    ],
)
def test_master_is_told_what_a_rank_raised(
    warm_worker: Worker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    text: str | None,
) -> None:
    monkeypatch.setenv("HVD_EPOCH", "7")
    monkeypatch.setenv("HVD_NOTICES", "")
    taken: list[dict[str, Any]] = []
    (tmp_path / "train.py").write_text(program)
    with notice_server.Server("127.0.0.1", taken.append) as server:
        variables = {name: os.environ[name] for name in ("HVD_EPOCH", "HVD_NOTICES")}
        done = warm_worker.run("python3", "train.py", cwd=tmp_path, variables=variables)
        server.shutdown()
    assert done.returncode == 1
    assert b"start cold" not in done.stdout
    of = {"host": socket.gethostname(), "rank": 0}
    raised = [{**of, "kind": "raised", "text": text}] if text else []
    assert taken == [*raised, {**of, "kind": "failed", "status": 1}]


def test_rank_ends_as_ever_where_no_master_listens(warm_worker: Worker) -> None:
    variables = {"HVD_EPOCH": "7", "HVD_NOTICES": "127.0.0.1,1,secret"}
    done = warm_worker.run("python3", "-c", "raise ValueError('x')", variables=variables)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "ValueError: x"
