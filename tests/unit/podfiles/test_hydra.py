"""Ranks under Hydra: a failure ends the whole run with the rank's exit code."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hydra
import pytest

# A script that tells by Hydra's descriptor that it runs; then it does what follows.
RUNNING = "import os, signal, sys; os.write(int(os.environ['PMI_FD']), b'runs'); "


@pytest.fixture
def pmi(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Hydra's end of the connection whose other end is in PMI_FD."""
    before = signal.getsignal(signal.SIGTERM)
    reader, writer = os.pipe()
    monkeypatch.setenv("PMI_FD", str(writer))
    yield reader
    signal.signal(signal.SIGTERM, before)
    for descriptor in (reader, writer):
        os.close(descriptor)


def received(reader: int) -> bytes:
    """What Hydra has got so far."""
    return os.read(reader, 4096) if select.select([reader], [], [], 0)[0] else b""


@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137), ("exit 1", 1)])
def test_failed_rank_aborts_the_run_with_its_exit_code(pmi: int, script: str, code: int) -> None:
    assert hydra.supervise(["sh", "-c", script]) == code
    assert received(pmi) == b"cmd=abort exitcode=%d\n" % code


def test_finished_rank_sends_nothing(pmi: int) -> None:
    assert hydra.supervise(["true"]) == 0
    assert received(pmi) == b""


def test_script_has_the_descriptor_of_hydra(pmi: int) -> None:
    assert hydra.supervise([sys.executable, "-c", RUNNING]) == 0
    assert received(pmi) == b"runs"


def test_request_to_end_reaches_the_script(pmi: int) -> None:
    script = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        f"import sys; {RUNNING} signal.pause()"
    )

    def ask() -> None:
        assert os.read(pmi, 4) == b"runs"
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    assert hydra.supervise([sys.executable, "-c", script]) == 7
    asking.join()
    assert received(pmi) == b"cmd=abort exitcode=7\n"


def test_abort_without_hydra_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PMI_FD", raising=False)
    hydra.abort(5)


def test_abort_after_the_end_of_hydra_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setenv("PMI_FD", str(writer))
    hydra.abort(5)
    os.close(writer)


def test_script_dies_with_its_rank() -> None:
    """Hydra kills the rank's process only: the script must not live on."""
    script = f"{RUNNING} signal.alarm(60); signal.pause()"
    program = (
        f"import sys; sys.path.insert(0, {str(Path(hydra.__file__).parent)!r}); import hydra; "
        f"hydra.supervise([sys.executable, '-c', {script!r}])"
    )
    reader, writer = os.pipe()
    environment = {**os.environ, "PMI_FD": str(writer)}
    rank = subprocess.Popen([sys.executable, "-c", program], env=environment, pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 4) == b"runs"
    rank.kill()
    rank.wait()
    # The pipe ends when the last process that has it, the script, is gone.
    assert select.select([reader], [], [], 10)[0], "the script outlives its rank"
    assert os.read(reader, 1) == b""
    os.close(reader)
