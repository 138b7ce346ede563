"""The Python stacks of ranks: only those of forks, and only where they wrote them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.hvd_pods.warm.worker import Worker, running
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


STACKS = """
import framework, os, time
def wait_for_data():
    print(os.getpid(), flush=True)
    while True:
        time.sleep(600)
wait_for_data()
"""


def test_rank_shows_its_python_stack_and_goes_on(either_worker: Worker) -> None:
    worker = either_worker
    with running(worker, STACKS) as (rank, (pid,)):
        # The client of a fork writes the rank down as soon as it is told its number.
        entry = worker.root / "generated" / "ranks" / "0"
        wait_until(lambda: entry.exists() and f" {pid}," in entry.read_text(), 20, "an entry")
        show = [sys.executable, "-I", str(worker.root / "bin" / "hvd_pods/worker/stacks.py"), "0"]
        for _ in range(2):
            first, thread, *frames = subprocess.check_output(show).decode().splitlines()
            assert first == "rank 0 shows its Python stack:"
            assert thread.startswith("Current thread ")
            # Not those of the chart's own programs.
            assert [frame.rpartition(" in ")[2] for frame in frames] == [
                "wait_for_data",
                "<module>",
            ]
        assert rank.poll() is None
        rank.kill()
        assert rank.stderr is not None
        assert rank.stderr.read() == b"", "the log of the run has it, too"
