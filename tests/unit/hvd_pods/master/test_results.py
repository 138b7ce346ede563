"""Storing the results: the master and the shell script of its sidecar, as real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import PROGRAMS
from hvd_pods.master import results
from tests.support.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.master_pod import MasterPod

SCRIPT = PROGRAMS / "master/results.sh"
STORE = 'cp model "$STORE"'
Sidecar = Callable[[str], "subprocess.Popen[str]"]
WANTED = {"results_timeout_seconds": 60}
# Less than an attempt and the pause after it.
ONCE = {"results_timeout_seconds": results.FIRST_RETRY_DELAY_SECONDS}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where results are stored."""
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def exchange(tmp_path: Path) -> Path:
    """The folder that the container shares with the master, beside the master's private key."""
    folder = tmp_path / "generated" / "results"
    folder.mkdir(parents=True)
    folder.with_name("user-key").write_text("1 PRIVATE")
    return folder


@pytest.fixture
def sidecar(exchange: Path, store: Path, tmp_path: Path) -> Iterator[Sidecar]:
    """Starts the container beside the master, with a command for a shell."""
    output = tmp_path / "output"
    output.mkdir()
    (output / "model").write_text("weights")
    environment = {
        "PATH": os.environ["PATH"],
        "STORE": str(store),
        "RESULTS_PATH": str(output),
        "RESULTS_EXCHANGE": str(exchange),
    }
    started: list[subprocess.Popen[str]] = []

    def start(command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["sh", str(SCRIPT), "sh", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        # As a container ends: all of its processes at once. It may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def recorded(pod: MasterPod) -> Any:
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    return item["data"]["results"]


@pytest.fixture
def unstored(pod: MasterPod, sidecar: Sidecar) -> MasterPod:
    """The pod of a master whose training has finished, and whose results could not be stored."""
    sidecar("exit 9")
    pod.install("exit 0")
    assert pod.run(**ONCE) == 0, "the training has finished"
    return pod


@pytest.mark.slow
def test_results_that_cannot_be_stored_change_no_outcome(unstored: MasterPod) -> None:
    assert unstored.recorded() == ("Finished", "")
    assert unstored.replicas() == 0


@pytest.mark.slow
def test_results_that_cannot_be_stored_are_tried_again(
    exchange: Path, sidecar: Sidecar, store: Path
) -> None:
    sidecar('echo x >>"$STORE/tries"; exit 9')
    assert "exit code 9" in results.store(
        exchange, TIMEOUT, lambda: False, first_delay_seconds=0.01
    )
    assert len((store / "tries").read_text().splitlines()) == 4


@pytest.mark.slow
def test_results_that_cannot_be_stored_are_reported_with_the_reason(unstored: MasterPod) -> None:
    event = unstored.api.items("core/events")[-1]
    assert (event["reason"], event["type"]) == ("ResultsNotStored", "Warning")
    for said in (event["message"], recorded(unstored), unstored.termination_log.read_text()):
        assert "`results.command`" in said
        assert "exit code 9" in said


@pytest.mark.slow
def test_a_container_that_was_killed_while_it_stored_is_asked_again(
    exchange: Path, sidecar: Sidecar, store: Path
) -> None:
    (exchange / "running").touch()
    first = sidecar(STORE)
    assert first.stdout is not None
    assert "`results.command`" in first.stdout.readline()
    wait_until((exchange / "answer").exists, TIMEOUT, "the master is told")
    assert (exchange / "answer").read_text().startswith("137 "), "as of a process that was killed"
    assert results.store(exchange, TIMEOUT, lambda: False) == ""
    assert (store / "model").read_text() == "weights"


def test_storing_ends_at_its_time_out(exchange: Path) -> None:
    os.mkfifo(exchange / "go")
    with (exchange / "go").open("r+b", buffering=0):
        assert results.store(exchange, 0.05, lambda: False) == results.TOO_LONG


@pytest.mark.slow
def test_a_master_that_is_asked_to_end_leaves_the_storing_to_the_next_one(
    pod: MasterPod, sidecar: Sidecar
) -> None:
    sidecar(f"kill -TERM {os.getpid()}; exec sleep {TIMEOUT}")
    pod.install("exit 0")
    assert pod.run(**WANTED) == 128 + signal.SIGTERM
    assert pod.recorded() == ("Finished", "")
    assert "terminated" in recorded(pod)


PLACE: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to(path.parents[1] / "user-key"),
    "FIFO": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "long file": lambda path: path.write_text(f"9 {'x' * 99_999}"),
}


@pytest.mark.parametrize("kind", PLACE)
@pytest.mark.promise("answer shows nothing of the masters and does not block it")
def test_answer_shows_nothing_of_the_masters_and_does_not_block_it(
    exchange: Path,
    kind: str,
    background: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such as the private key, which would then be in the log, in an event and in the record."""
    os.mkfifo(exchange / "go")
    stored = background(partial(results.store, exchange, TIMEOUT, lambda: False, attempts=1))
    (exchange / "go").read_text()
    PLACE[kind](exchange / "answer")
    failure = stored.result(TIMEOUT)
    assert "kubectl logs" in failure
    assert len(failure) < 1000
    assert "PRIVATE" not in failure + capsys.readouterr().out


@pytest.mark.parametrize("kind", ["link", "long file", "folder"])
def test_request_goes_to_nothing_but_a_pipe(exchange: Path, kind: str) -> None:
    PLACE[kind](exchange / "go")
    failure = results.store(
        exchange, TIMEOUT, lambda: False, attempts=1, ready_timeout_seconds=0.05
    )
    assert failure not in ("", results.TOO_LONG)
    assert (exchange.parent / "user-key").read_text() == "1 PRIVATE"
