"""One master at a time: a higher fence number ends what lower ones left, and locks them out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import FILES
from hvd_pods.master.agent_connection import AgentConnectionError
from hvd_pods.pod import processes
from hvd_pods.worker import fence
from tests.unit.hvd_pods.support.programs import Program
from tests.unit.hvd_pods.worker.agent.pods import AgentPod, all_commands, start_agent

pytestmark = pytest.mark.slow

# The fence number of the first master; later ones have higher numbers.
NUMBER = 100
# Stays as a process that calls itself what its first argument says, and runs what follows it.
RENAMED = """
import os, sys, time
with open("/proc/self/comm", "w") as name:
    name.write(sys.argv[1])
open(sys.argv[2], "w")
time.sleep(600)
"""


@pytest.fixture
def fenced() -> Iterator[AgentPod]:
    """A worker of which no master has asked anything yet."""
    with start_agent() as started:
        yield started


def count_input(worker: AgentPod, number: int) -> bytes:
    """Give input to a program that counts it and stays."""
    with worker.shell("wc -c; sleep 60", number) as program:
        program.give(bytes(200_000))
        program.give(b"")
        return program.read_until(b"\n")


def end_of(program: Program) -> str:
    """Return a program's exit code, or why it was not started."""
    try:
        return str(program.wait())
    except AgentConnectionError as problem:
        return str(problem)


@pytest.mark.promise("newer master ends the programs of the older one which is then refused")
def test_newer_master_ends_the_programs_of_the_older_one_which_is_then_refused(
    fenced: AgentPod,
) -> None:
    with fenced.shell("echo $HVD_FENCE; sleep 60", NUMBER) as old:
        old.read_until(f"{NUMBER}\n".encode())
        assert fenced.run("echo $HVD_FENCE", NUMBER + 1).output == f"{NUMBER + 1}\n".encode()
        assert old.wait() == 128 + signal.SIGKILL, "its rank continues"
    said = rf"^refused: .*\b{NUMBER}\b.*\b{NUMBER + 1}\b"
    with pytest.raises(AgentConnectionError, match=said):
        fenced.run("echo trained", NUMBER)
    assert fenced.run("true", NUMBER + 1).exit_code == 0


def test_program_without_a_fence_number_runs_beside_those_of_the_present_one(
    fenced: AgentPod,
) -> None:
    """As a script's `ssh` in a master whose variables were removed."""
    with fenced.shell("echo up; cat", NUMBER) as running:
        running.read_until(b"up\n")
        assert fenced.run("echo $HVD_FENCE").output == f"{NUMBER}\n".encode()
        running.give(b"")
        assert running.wait() == 0


@pytest.mark.parametrize(
    "how",
    [
        "setsid {program} &",
        "HVD_FENCE= setsid {program} &",
        "env -i setsid {program} &",
        "setsid -f {program}",
        "(setsid -f sh -c '{program} & exec {program}' &)",
        "trap '' HUP TERM INT; nohup {program} &",
        "cd / && exec -a hvd-guard {program} &",
    ],
)
@pytest.mark.promise("what earlier attempts have left is ended before a later one starts a program")
def test_whatever_earlier_attempts_have_left_is_ended_before_a_program_of_a_later_one_starts(
    fenced: AgentPod, how: str
) -> None:
    """Also what runs on, as the agent connection of it does."""
    mark = f"sleep 64{os.getpid()}{NUMBER}"
    line = how.format(program=f"env {mark} </dev/null >/dev/null 2>&1")
    with fenced.ask(["bash", "-c", f"{line}\necho up; cat"], NUMBER) as program:
        program.read_until(b"up\n")
        wait_until(lambda: mark.encode() in all_commands(), 20, "it is there")
        find = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done"
        following = fenced.run(find, NUMBER + 1).output
    assert b"/hvd_pods/worker/agent.py" in following, "processes are shown"
    assert mark.encode() not in following


def test_process_that_calls_itself_a_guard_is_ended(fenced: AgentPod) -> None:
    ready = fenced.pod.generated / f"ready-{NUMBER}"
    script = fenced.pod.generated / f"renamed-{NUMBER}.py"
    script.write_text(RENAMED)
    words = f"python3 -I {script} hvd-guard {ready}"
    with fenced.shell(f"setsid -f {words} >/dev/null 2>&1; echo up; cat", NUMBER) as program:
        program.read_until(b"up\n")
        wait_until(ready.exists, 20, "it is there")
        assert fenced.run("true", NUMBER + 1).exit_code == 0
    assert str(ready).encode() not in all_commands()


@pytest.mark.promise("files that a program writes change no fence number and no environment")
def test_files_that_a_program_writes_change_no_fence_number_and_no_environment(
    fenced: AgentPod,
) -> None:
    """Also not files beside those that the worker itself generated."""
    folder = fenced.pod.generated
    far = str(10**15)
    lines = "".join(
        f"printf %s {content} >{folder}/{name};"
        for name, content in {
            "fence": far,
            "finished": f"'{far} 1'",
            "environment": r"'PYTHONPATH=/tmp/evil\0HVD_FENCE=1\0'",
            "sitecustomize.py": "'print(1)'",
            "workers.json": "'{}'",
        }.items()
    )
    exports = "export PYTHONPATH=/tmp/evil PATH=/tmp/evil:$PATH HVD_REVISION=x"
    before = fenced.run("env | sort", NUMBER).output
    assert fenced.run(f"{lines} {exports}", NUMBER).exit_code == 0
    after = fenced.run("env | sort", NUMBER).output
    assert after == before
    assert fenced.run("echo next", NUMBER + 1).output == b"next\n"


def test_lock_on_a_file_of_the_worker_hangs_no_later_attempt(fenced: AgentPod) -> None:
    held = f"for f in {fenced.pod.generated}/* {fenced.pod.root}/metrics; do echo; done"
    line = f"flock -x {fenced.pod.generated} -c '{held}; echo up; sleep 600'"
    with fenced.shell(line, NUMBER) as program:
        program.read_until(b"up\n")
        assert fenced.run("echo next", NUMBER + 1).output == b"next\n"


def test_input_before_the_fence_opens_reaches_the_program(
    fenced: AgentPod,
) -> None:
    """As the user's code does, which the first connection of an attempt brings."""
    with fenced.shell("echo up; cat", NUMBER) as old:
        old.read_until(b"up\n")
        counted = [count_input(fenced, NUMBER + later) for later in range(1, 6)]
    assert counted == [b"200000\n"] * 5


def test_newest_of_masters_that_come_at_once_is_served(fenced: AgentPod) -> None:
    with (
        fenced.shell("echo up; cat", NUMBER) as old,
        fenced.shell("sleep 60", NUMBER + 1) as first,
        fenced.shell("echo second", NUMBER + 2) as second,
    ):
        old.read_until(b"up\n")
        # It asks, and the agent may still end what the old one has left.
        first.wait_for_answer()
        assert second.wait() == 0
        assert second.output == b"second\n"
        end = end_of(first)
        assert end == "137" or end.startswith("refused: ")


# A worker's main program: what its children leave comes to it. It has started a process of its own
# before the agent, whose fence ends what is left after that.
MAIN = """
import os, subprocess, sys
sys.path.insert(0, {files!r})
from hvd_pods.pod import processes
processes.set_process_option(processes.PR_SET_CHILD_SUBREAPER, 1)
own = subprocess.Popen(["sleep", "600"])
words = [sys.executable, "-I", "-c", {agent!r}]
agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
agent.stdout.readline()
left = "sleep 600 >/dev/null & echo $!"
orphan = subprocess.check_output(["sh", "-c", left], text=True).strip()
print(processes.read_stat(orphan).parent == os.getpid())
agent.communicate("\\n")
print(own.poll() is None, processes.read_stat(orphan).state)
own.kill()
"""
AGENT = """
import os, sys, time
sys.path.insert(0, {files!r})
from hvd_pods.worker import fence
tried = fence.Fence(os.getppid(), "", guards_timeout_seconds={guards_timeout_seconds})
print(flush=True)
sys.stdin.readline()
tried.admit(1)
while not tried.end_older():
    time.sleep(0.01)
"""


def test_process_that_lost_its_guard_is_ended_and_the_workers_own_are_not() -> None:
    """Training code in a warm rank can kill its guard: it is then the main program's child."""
    agent = AGENT.format(files=str(FILES), guards_timeout_seconds=0.3)
    main = MAIN.format(files=str(FILES), agent=agent)
    words = [sys.executable, "-I", "-c", main]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "True", "Z"]


# As the warm process: started before the agent, it forks guards of ranks later.
WARM = """
import os, signal, subprocess, sys, time
sys.stdin.readline()
if os.fork() == 0:
    with open("/proc/self/comm", "w") as name:
        name.write("hvd-guard")
    rank = subprocess.Popen(["sleep", "600"])
    print(os.getpid(), rank.pid, flush=True)
    if {ends}:
        time.sleep(0.1)
        rank.kill()
        rank.wait()
        os._exit(0)
    signal.pause()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
sys.stdin.readline()
"""
WITH_GUARD = """
import os, subprocess, sys, time
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
warm, agent = (
    subprocess.Popen([sys.executable, "-I", "-c", code], **pipes) for code in {codes!r}
)
agent.stdout.readline()
warm.stdin.write("\\n")
warm.stdin.flush()
pids = warm.stdout.readline().split()
began = time.monotonic()
agent.communicate("\\n")
took = time.monotonic() - began
are_there = (os.path.exists("/proc/" + pid) for pid in pids)
print(took > {guards_timeout_seconds}, warm.poll() is None, *are_there)
warm.communicate()
"""


@pytest.mark.parametrize(("ends", "is_late"), [(True, False), (False, True)])
def test_guard_of_a_warm_rank_ends_it_or_is_ended_after_a_while(ends: bool, is_late: bool) -> None:
    # A busy machine takes its time where nothing is to be late.
    within = 0.3 if is_late else 20.0
    codes = [WARM.format(ends=ends), AGENT.format(files=str(FILES), guards_timeout_seconds=within)]
    line = WITH_GUARD.format(codes=codes, guards_timeout_seconds=within)
    words = [sys.executable, "-I", "-c", line]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    late, warm, guard, rank = done.stdout.split()
    assert (late, warm, guard) == (str(is_late), "True", "False")
    # The one that was killed with its guard waits to be reaped by the container's first process.
    assert rank == "False" or is_late


@pytest.mark.parametrize(
    "change",
    [
        "chmod 600 rank/start.py; echo 'print(1)' > rank/start.py",
        "chmod u+w rank; touch rank/ssl.py",
        "chmod u+w rank; rm rank/start.py",
        "touch -r rank/start.py rank/worker_ranks.py",
        "chmod 600 library/keep/packed_state.py; echo 'print(1)' > library/keep/packed_state.py",
        "mkdir more",
    ],
)
@pytest.mark.promise("program that training code has changed does not run for the next launch")
def test_program_that_training_code_has_changed_does_not_run_for_the_next_launch(
    change: str,
) -> None:
    """The container ends instead, and the next one unpacks the programs anew."""
    with start_agent() as worker:
        folder = worker.pod.files / "hvd_pods"
        assert worker.run("true", 1).exit_code == 0
        assert worker.run("true", 2).exit_code == 0
        done = worker.run(f"cd {folder} && {change}", 2)
        assert done.exit_code == 0, done.errors
        with suppress(AgentConnectionError):
            assert not worker.run("echo runs", 3).output
        worker.process.wait(20)
        assert "has changed since this container unpacked the programs" in worker.log


# No process has a number above the largest that Linux gives: what is sent to it reaches none.
NO_PROCESS = 1 << 22


class TestFenceNumbers:
    """What decides which requests are admitted."""

    @pytest.fixture
    def tried(self, monkeypatch: pytest.MonkeyPatch) -> fence.Fence:
        # Also those of other tests.
        monkeypatch.setattr(processes, "has_child", lambda: False)
        monkeypatch.setattr(processes, "all_processes", lambda: iter(()))
        return fence.Fence(os.getpid(), "", end_timeout_seconds=-1.0)

    def test_first_number_closes_the_fence_until_nothing_is_left(self, tried: fence.Fence) -> None:
        assert tried.admit(5)
        assert tried.is_closed
        assert tried.end_older()
        assert not tried.is_closed

    @pytest.mark.parametrize(("number", "closes"), [(5, False), (0, False), (6, True)])
    def test_only_a_higher_number_closes_the_fence_again(
        self, tried: fence.Fence, number: int, *, closes: bool
    ) -> None:
        tried.admit(5)
        tried.end_older()
        assert tried.admit(number) is closes
        assert tried.is_closed is closes

    def test_processes_that_do_not_end_are_named_and_looked_for_again(
        self, tried: fence.Fence, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stuck = [
            processes.ProcessStat(NO_PROCESS + number, "D", os.getpid(), 1, 0, "0")
            for number in (2, 1)
        ]
        monkeypatch.setattr(processes, "all_processes", lambda: iter(stuck))
        tried.admit(5)
        named = rf"\[{NO_PROCESS + 1}, {NO_PROCESS + 2}\]"
        with pytest.raises(fence.FenceError, match=named):
            tried.end_older()
        # The next request does not start its program beside them.
        assert not tried.admit(5)
        assert tried.is_closed
