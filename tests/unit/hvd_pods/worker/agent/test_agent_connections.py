"""What a master can do with a worker's agent: the worker's real processes, over real TLS."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.protocol import frames
from hvd_pods.worker import rank_watch
from tests.unit.hvd_pods.support.programs import Program
from tests.unit.hvd_pods.worker.agent.pods import CONTAINER, AgentPod, all_commands

pytestmark = pytest.mark.slow

# Each process starts the next one, and ends. The first one says that it has begun.
FORKS = """
import os, sys, time
open(sys.argv[2], "x").close()
until = time.monotonic() + 20
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
"""


def rests_since_last_call(process: int) -> Callable[[], bool]:
    """A condition that holds when a process has read nothing since it was looked at last."""
    seen = [""]

    def rests() -> bool:
        (read,) = re.findall(r"rchar: (\d+)", Path(f"/proc/{process}/io").read_text())
        seen.append(read)
        return seen[-2] == seen[-1]

    return rests


def test_program_gets_its_input_and_its_output_and_exit_code_come_back(worker: AgentPod) -> None:
    with worker.shell("cat; echo wrong >&2; exit 7") as program:
        program.give(b"one\n")
        program.read_until(b"one\n")
        program.give(b"two\n")
        program.give(b"")
        assert program.wait() == 7
    assert program.output == b"two\n"
    assert program.errors == b"wrong\n"


@pytest.mark.promise("program waits while its master does not read")
def test_program_waits_while_its_master_does_not_read(worker: AgentPod) -> None:
    with worker.shell("head -c 100000000 /dev/zero & wait; echo end >&2") as program:
        program.read_until(b"\0")
        rests = rests_since_last_call(worker.agent)
        # Kernel's buffers and the agent's own hold a small part of it.
        wait_until(rests, 60, "the agent reads no more")
        status = Path(f"/proc/{worker.agent}/status").read_text()
        (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
        assert int(kib) < 60_000, "the agent keeps what its master has not read"


def test_program_gets_a_signal(worker: AgentPod) -> None:
    line = "trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.1; done"
    with worker.shell(line) as it:
        it.read_until(b"ready\n")
        it.connection.send(frames.SIGNAL, frames.NUMBER.pack(signal.SIGUSR1))
        assert it.wait() == 3
    assert it.output == b"caught\n"


@pytest.mark.promise("program has the containers environment and what the master gives")
def test_program_has_the_containers_environment_and_what_the_master_gives(
    worker: AgentPod,
) -> None:
    program = worker.ask(
        ["env", "-0"], 5, attempt=2, run="run-1", variables={"HVD_NOTICES": "a,1,s"}
    )
    with program:
        assert program.wait() == 0
    entries = (entry.partition(b"=") for entry in program.output.split(b"\0") if entry)
    found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries}
    packages = worker.pod.root / "code" / ".packages" / "current"
    expected = {
        **worker.variables,
        "PATH": f"{CONTAINER['PATH']}:{packages}/bin",
        "PYTHONPATH": f"{packages}/site",
        "LD_LIBRARY_PATH": f"{packages}/lib",
        rank_watch.PERIOD_VARIABLE: str(rank_watch.MAX_PERIOD_SECONDS),
        "HVD_FENCE": "5",
        "HVD_ATTEMPT": "2",
        "HVD_RUN_ID": "run-1",
        "HVD_NOTICES": "a,1,s",
    }
    assert {name: value for name, value in found.items() if name != "LC_CTYPE"} == expected


def test_program_that_is_not_there_is_named(worker: AgentPod) -> None:
    with worker.ask(["no-such-program"]) as program:
        assert program.wait() == 127
    assert b"cannot run no-such-program: there is no such program" in program.errors


@pytest.mark.parametrize("how", ["setsid", "setsid -f", "nohup"])
def test_nothing_that_a_program_has_started_outlives_it(worker: AgentPod, how: str) -> None:
    mark = f"sleep 61{os.getpid()}{how.count('-')}"
    program = worker.run(f"{how} {mark} </dev/null >/dev/null 2>&1 & echo started")
    assert program.output == b"started\n"
    assert mark.encode() not in all_commands()


@pytest.mark.parametrize("number", range(5))
def test_forking_program_does_not_outlive_its_connection(worker: AgentPod, number: int) -> None:
    """A look at all processes misses the child of one that ends during the look."""
    script = worker.pod.generated / "forks.py"
    # Bounded, so that a red test leaves nothing for ever.
    script.write_text(FORKS)
    mark = f"mark-{os.getpid()}-{number}"
    begun = worker.pod.generated / mark
    program = worker.run(
        f"setsid -f python3 -I {script} {mark} {begun} >/dev/null 2>&1; "
        f"until [ -e {begun} ]; do sleep 0.01; done"
    )
    assert program.exit_code == 0
    assert mark.encode() not in all_commands()
    # One that was missed would have started another one meanwhile.
    assert worker.run("true").exit_code == 0
    assert mark.encode() not in all_commands()


@pytest.mark.promise("end of the connection ends the program with all that it has started")
def test_end_of_the_connection_ends_the_program_with_all_that_it_has_started(
    worker: AgentPod,
) -> None:
    mark = f"sleep 62{os.getpid()}"
    with worker.shell(f"trap '' HUP TERM; setsid {mark} & echo up; {mark}") as program:
        program.read_until(b"up\n")
    wait_until(lambda: mark.encode() not in all_commands(), 20, "the program is ended")


def test_program_whose_supervisor_is_killed_is_ended(worker: AgentPod) -> None:
    """Training code runs as the same user, and may kill any process of its worker's."""
    mark = f"sleep 63{os.getpid()}"
    with worker.shell(f"setsid {mark} & kill -KILL $PPID; {mark}") as program:
        assert program.wait() == 128 + signal.SIGKILL
    wait_until(lambda: mark.encode() not in all_commands(), 20, "the program is ended")


def test_programs_run_side_by_side(worker: AgentPod) -> None:
    with ExitStack() as stack:

        def start(number: int) -> Program:
            program = stack.enter_context(worker.shell("echo ready; read line; echo $line"))
            program.read_until(b"ready\n")
            program.give(f"{number}\n".encode())
            return program

        many = [start(number) for number in range(10)]
        assert [program.wait() for program in reversed(many)] == [0] * 10
        output = [program.output for program in many]
    assert output == [f"{number}\n".encode() for number in range(10)]


@pytest.mark.promise("log has peer fence number and hash of a connection and no values")
def test_log_has_peer_fence_number_and_hash_of_a_connection_and_no_values(worker: AgentPod) -> None:
    worker.run("exit 9; echo secret-argument", variables={"HVD_NOTICES": "a,1,secret-value"})
    wait_until(lambda: "ended: 9" in worker.log, 20, "the log has the connection")
    line = next(line for line in worker.log.splitlines() if "ended: 9" in line)
    assert "agent connection from ::ffff:127.0.0.1: fence number 0, argv " in line
    assert "secret" not in worker.log
