"""Input and output of a program that does not read, and of a master that does not read."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.master.agent_connection import AgentConnectionError
from hvd_pods.protocol import frames
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.support.programs import Program
from tests.unit.hvd_pods.worker.agent.limited import start_limited
from tests.unit.hvd_pods.worker.agent.pods import AgentPod, all_commands

pytestmark = pytest.mark.slow


def give_often(program: Program, content: bytes, times: int) -> None:
    for _ in range(times):
        program.give(content)
        program.step(time.monotonic() + 0.05)


def test_program_that_does_not_read_its_input_is_ended_with_its_connection(
    worker: AgentPod,
) -> None:
    """The end of a connection is seen only by who reads all that came before."""
    mark = f"sleep 65{os.getpid()}"
    with worker.shell(f"echo up; exec {mark}") as program:
        program.give(bytes(10_000_000))
        program.read_until(b"up\n")
    wait_until(lambda: mark.encode() not in all_commands(), 20, "the program is ended")


def test_program_that_closes_its_input_continues_while_its_master_sends_more(
    worker: AgentPod,
) -> None:
    sent = worker.pod.root / "sent"
    line = f"exec <&-; echo closed; until [ -e {sent} ]; do sleep 0.01; done; echo end"
    with worker.shell(line) as program:
        program.give(bytes(300_000))
        program.read_until(b"closed\n")
        give_often(program, b"more\n", times=3)
        sent.touch()
        assert program.wait() == 0
    assert program.output == b"end\n"


def test_master_knows_how_much_of_its_input_waits_for_the_program(worker: AgentPod) -> None:
    with worker.shell("echo up; read line; exec cat >/dev/null") as program:
        program.give(b"go on\n" + bytes(1_000_000))
        program.read_until(b"up\n")

        def is_taken() -> bool:
            program.step(time.monotonic() + 0.1)
            return program.connection.waiting <= frames.ACKNOWLEDGED_BYTES

        wait_until(is_taken, 60, "the program has read it")
        program.give(b"")
        assert program.wait() == 0


def test_input_that_waits_for_a_program_is_bounded(worker: AgentPod) -> None:
    with worker.shell("echo up; sleep 60") as program:
        program.read_until(b"up\n")
        with pytest.raises(AgentConnectionError, match=r"ended|reset"):
            give_often(program, bytes(1_000_000), times=1000)
    assert " 67108864 " in worker.log


def test_all_output_comes_to_a_master_that_reads_it_late(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    """Also what the program had written just before its end."""
    with (
        start_limited(tmp_path / "agent", release, end_timeout_seconds=0.2) as agent,
        agent.shell("echo up; head -c 5000000 /dev/zero; echo end") as program,
    ):
        program.read_until(b"up\n")
        # Longer than `end_timeout_seconds`: only time shows that this limit does not count yet.
        time.sleep(1)
        assert program.wait() == 0
        assert len(program.output) == 5_000_004
        assert program.output.endswith(b"end\n")


def test_both_streams_come_in_the_order_of_each(worker: AgentPod) -> None:
    line = "for n in $(seq 500); do echo out $n; echo err $n >&2; done"
    with worker.shell(line) as program:
        assert program.wait() == 0
    numbers = range(1, 501)
    assert program.output.splitlines() == [b"out %d" % number for number in numbers]
    assert program.errors.splitlines() == [b"err %d" % number for number in numbers]


def test_end_of_the_input_reaches_a_program_that_has_read_nothing_yet(worker: AgentPod) -> None:
    with worker.shell("sleep 0.2; wc -c") as program:
        program.give(bytes(1_000_000))
        program.give(b"")
        assert program.wait() == 0
    assert program.output == b"1000000\n"


@pytest.mark.promise("program that was left continues for its time and is then ended")
def test_program_that_was_left_continues_for_its_time_and_is_then_ended(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    """Of two that go on, the one is ended whose time is over."""
    written = tmp_path / "written"
    beside = tmp_path / "beside"
    line = f"echo $$; read line; while :; do echo $line >>{written}; sleep 0.05; done"
    with start_limited(tmp_path / "agent", release, end_timeout_seconds=0.1) as agent:
        with agent.shell(line, stay=600.0) as longer:
            longer.read_until(b"\n")
            longer.connection.send(frames.STAY)
            wait_until(written.exists, 20, "it was told to stay")
        with agent.shell(line.replace("written", "beside"), stay=0.5) as shorter:
            process = Path("/proc", shorter.read_until(b"\n").decode().strip())
            shorter.connection.send(frames.STAY)
            wait_until(beside.exists, 20, "it was told to stay")
        wait_until(lambda: f"ended: {-signal.SIGKILL}" in agent.log, 20, "it is ended", 0.05)
        # Nothing is left of it.
        wait_until(lambda: not process.exists(), 20, "its process is gone")
        assert set(beside.read_text().split()) == {"stay"}
        size = written.stat().st_size
        wait_until(lambda: written.stat().st_size > size, 20, "the other continues")
        assert agent.log.count("ended: ") == 1


def test_program_that_was_not_left_does_not_stay(tmp_path: Path, release: ReleaseKeys) -> None:
    with start_limited(tmp_path / "agent", release, end_timeout_seconds=0.1) as agent:
        with agent.shell("echo up; sleep 60", stay=60.0) as program:
            program.read_until(b"up\n")
        wait_until(lambda: f"ended: {-signal.SIGKILL}" in agent.log, 20, "it is ended")


def test_program_has_no_descriptor_of_another_connection(worker: AgentPod) -> None:
    with worker.shell("echo up; cat") as other:
        other.read_until(b"up\n")
        listed = worker.run("ls -l /proc/self/fd /proc/$PPID/fd | grep -c socket:")
        assert listed.output == b"0\n"


def test_program_has_a_session_and_a_group_of_its_own_and_no_terminal(worker: AgentPod) -> None:
    fields = worker.run("cut -d' ' -f1,5,6,7 /proc/$$/stat").output.split()
    pid, group, session, terminal = fields
    assert pid == group == session
    assert terminal == b"0"
