"""The Python stacks of ranks: only those of forks, and only where they wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from devtools.common.waiting import wait_until
from tests.unit.hvd_pods.warm.worker import Worker, run_rank

pytestmark = pytest.mark.slow


STACKS = """
import framework, os, time
def wait_for_data():
    print(os.getpid(), flush=True)
    while True:
        time.sleep(600)
wait_for_data()
"""


@pytest.fixture
def rank(either_worker: Worker) -> Iterator[subprocess.Popen[bytes]]:
    """A rank that waits for its data; its worker knows its process."""
    with run_rank(either_worker, STACKS) as (client, (pid,)):
        # The client of a fork writes the rank down as soon as it is told its number.
        entry = either_worker.root / "generated" / "ranks" / "0"
        wait_until(lambda: entry.exists() and f" {pid}," in entry.read_text(), 20, "an entry")
        yield client


def show_stack(worker: Worker, *options: str) -> list[str]:
    """The lines in which the worker shows the stack of rank 0."""
    program = str(worker.root / "bin" / "hvd_pods/worker/stacks.py")
    shown = subprocess.check_output([sys.executable, "-I", program, *options, "0"])
    return shown.decode().splitlines()


@pytest.mark.usefixtures("rank")
def test_stack_has_the_frames_of_the_script_alone(either_worker: Worker) -> None:
    """Not those of the chart's own programs."""
    first, thread, *frames = show_stack(either_worker)
    assert first == "rank 0 shows its Python stack:"
    assert thread.startswith("Current thread ")
    assert [frame.rpartition(" in ")[2] for frame in frames] == ["wait_for_data", "<module>"]
    (said,) = map(json.loads, show_stack(either_worker, "--json"))
    assert said["shown"].splitlines()[2:] == frames
    assert said["place"].endswith(" in wait_for_data")


def test_rank_continues_and_shows_its_stack_again(
    either_worker: Worker, rank: subprocess.Popen[bytes]
) -> None:
    def is_asleep() -> bool:
        return " line 6 in wait_for_data" in show_stack(either_worker)[2]

    wait_until(is_asleep, 20, "it has printed its number")
    assert is_asleep()
    assert rank.poll() is None


def test_stack_is_not_in_the_output_of_the_rank(
    either_worker: Worker, rank: subprocess.Popen[bytes]
) -> None:
    """The log of the run would have it twice."""
    show_stack(either_worker)
    rank.kill()
    assert rank.stderr is not None
    assert rank.stderr.read() == b""
