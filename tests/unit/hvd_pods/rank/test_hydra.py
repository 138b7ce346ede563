"""Ranks under Hydra: a failure ends the whole run with the rank's exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import pytest

from hvd_pods.rank import rank_end
from tests.unit.hvd_pods.copies import FILES

RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.rank import child_rank, rank_end
sys.exit(rank_end.finish(child_rank.run(sys.argv[2:])))
"""


def run(*script: str) -> tuple[int, bytes]:
    """Run a script as a rank under Hydra, which asks it to end when it says that it runs."""
    reader, writer = os.pipe()
    rank = subprocess.Popen(
        [sys.executable, "-I", "-c", RANK, str(FILES), *script],
        env={**os.environ, "PMI_FD": str(writer)}, pass_fds=[writer], stdout=PIPE,
    )  # fmt: skip
    os.close(writer)
    with rank, os.fdopen(reader, "rb") as pmi:
        assert rank.stdout is not None
        if rank.stdout.readline():
            rank.terminate()
        return rank.wait(60), pmi.read()


@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137), ("exit 1", 1)])
def test_failed_rank_aborts_the_run_with_its_exit_code(script: str, code: int) -> None:
    assert run("sh", "-c", script) == (code, b"cmd=abort exitcode=%d\n" % code)


def test_finished_rank_sends_nothing() -> None:
    assert run("true") == (0, b"")


def test_script_has_the_descriptor_of_hydra() -> None:
    script = "import os; os.write(int(os.environ['PMI_FD']), b'mine')"
    assert run(sys.executable, "-c", script) == (0, b"mine")


def test_request_to_end_reaches_the_script() -> None:
    """Hydra kills the rank's process only."""
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print('runs', flush=True); signal.pause()"
    )
    assert run(sys.executable, "-c", script) == (7, b"cmd=abort exitcode=7\n")


def test_abort_after_the_end_of_hydra_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setenv("PMI_FD", str(writer))
    rank_end.abort_under_hydra(5)
    os.close(writer)
