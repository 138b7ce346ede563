"""The command `watch`, with a small API server."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    DONE,
    ENDED_MASTER,
    FAILED,
    FAILED_MASTER,
    JOB,
    MASTER,
    STATEFUL_SET,
    job,
)
from tests.unit.hvdchart.played_runs import meanwhile, play_run, report_progress

pytestmark = pytest.mark.timeout(120)
PROBE = "cpu 1000000 10\ncpu 2500000 11\nmemory 209715200\n0:hvdchart_step 7\n"
COMMAND = [sys.executable, "-m", "hvdchart", "watch", "hvd"]


@pytest.fixture
def live(fake_cluster: FakeCluster, kubectl: StubProgram) -> FakeCluster:
    """A run that continues; its log does, too."""
    kubectl.answer("team", PROBE)
    fake_cluster.put("jobs", job())
    fake_cluster.put("statefulsets", STATEFUL_SET)
    play_run(fake_cluster, job(), MASTER)
    report_progress(fake_cluster, {"step": 120, "steps": 500, "loss": 0.41})
    return fake_cluster


def test_what_is_no_terminal_gets_a_line_for_each_change(
    hvdchart: Command, live: FakeCluster
) -> None:
    def end() -> None:
        live.wait_for("log", "get")
        play_run(live, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("watch", "hvd")
    lines = done.output.splitlines()
    assert done.code == 0
    assert lines[0] == "hvd: running, step 120 of 500, loss 0.41"
    assert lines[-1].startswith("hvd: finished, step 120 of 500")
    assert len(lines) == len(set(lines))


def test_a_run_that_has_failed_is_shown_and_fails(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play_run(fake_cluster, FAILED, FAILED_MASTER)
    done = hvdchart("watch", "hvd")
    assert (done.code, done.output) == (8, "hvd: failed, attempt 4 of 4, boom\n")


def test_a_run_of_which_only_the_record_is_left_is_shown(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    fake_cluster.put("statefulsets", STATEFUL_SET)
    record = {"state": "Finished", "progress": json.dumps({"step": 9})}
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": record})
    assert hvdchart("watch", "hvd").output == "hvd: finished, step 9\n"


def test_a_run_is_shown_to_who_may_not_read_logs(hvdchart: Command, live: FakeCluster) -> None:
    live.refusals["log get"] = (403, "forbidden")

    def end() -> None:
        live.wait_for("jobs", "watch", 2)
        play_run(live, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("watch", "hvd")
    assert done.code == 0
    assert done.output.splitlines()[-1].startswith("hvd: finished")


def test_a_port_without_the_page_is_refused(hvdchart: Command) -> None:
    done = hvdchart("watch", "hvd", "--port", "8000")
    assert done.code == 2
    assert "add --web" in done.errors


@contextmanager
def started(*arguments: str, terminal: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own."""
    target = subprocess.PIPE if terminal is None else terminal
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=terminal, stdout=target, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_the_page_is_served_until_ctrl_c(live: FakeCluster) -> None:
    with started("--web") as process:
        assert process.stdout
        line = process.stdout.readline().decode()
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", line)
        assert address, line
        with urllib.request.urlopen(address[0], timeout=30) as answer:  # noqa: S310 - its form was checked
            assert '"step":120' in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.slow
def test_the_page_of_a_run_that_has_failed_fails_when_it_ends(fake_cluster: FakeCluster) -> None:
    play_run(fake_cluster, FAILED, FAILED_MASTER)
    with started("--web") as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 8


@pytest.mark.slow
def test_a_dumb_terminal_gets_lines_as_soon_as_they_come(
    live: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    outer, inner = pty.openpty()
    with started(terminal=inner) as process:
        os.close(inner)
        readable, _, _ = select.select([outer], [], [], 30)
        assert readable, "it shows nothing while the run continues"
        assert os.read(outer, 1 << 16).startswith(b"hvd: running, step 120 of 500")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    os.close(outer)


def read_until(terminal: int, sign: bytes) -> None:
    """Read what the command draws, until this is a part of it."""
    shown = b""
    while sign not in shown:
        shown += os.read(terminal, 1 << 16)


def press_q(terminal: int, process: subprocess.Popen[bytes]) -> None:
    os.write(terminal, b"q")


def press_ctrl_c(terminal: int, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("press", [press_q, press_ctrl_c])
def test_a_key_ends_the_view_and_leaves_the_run(
    live: FakeCluster, press: Callable[[int, subprocess.Popen[bytes]], None]
) -> None:
    outer, inner = pty.openpty()
    with started(terminal=inner) as process:
        os.close(inner)
        # It draws on the other screen of the terminal, and leaves that at its end.
        read_until(outer, b"RANK")
        press(outer, process)
        read_until(outer, b"\x1b[?1049l")
        assert process.wait(30) == 0
    os.close(outer)
    assert live.find("jobs", JOB) is not None


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_view_and_restores_the_terminal(
    live: FakeCluster, sent: signal.Signals
) -> None:
    outer, inner = pty.openpty()
    before = termios.tcgetattr(outer)
    with started(terminal=inner) as process:
        os.close(inner)
        read_until(outer, b"RANK")
        assert termios.tcgetattr(outer) != before
        process.send_signal(sent)
        read_until(outer, b"\x1b[?1049l")
        assert process.wait(30) == -sent
    assert termios.tcgetattr(outer) == before
    os.close(outer)
