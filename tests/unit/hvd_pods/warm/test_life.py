"""How ranks end with their clients, and what remains when a process of the chart is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.warm_worker import is_alive
from tests.unit.hvd_pods.warm.worker import Worker, list_children, make_worker, run_rank, warm_up

pytestmark = pytest.mark.slow

# Prints its process ID, that of an orphan in a session of its own, and that of its guard, then
# waits for a signal.
WAITS = """
import framework, os, signal, subprocess, sys
def end(number, frame):
    # The signal may come within print, which must not be called again there.
    os.write(1, b"got %d\\n" % number)
    sys.exit(40 + number)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, end)
start = "setsid sleep 600 >/dev/null 2>&1 & echo $!"
orphan = int(subprocess.check_output(["sh", "-c", start]))
print(os.getpid(), orphan, os.getppid(), flush=True)
while True:
    signal.pause()
"""


def send_nonsense(worker: Worker) -> None:
    """Connect to the warm process without a request, and with one that says nothing."""
    for descriptors in ([], [0], [0, 0]):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(worker.socket))
            socket.send_fds(connection, [b"m"], descriptors)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """What the import of the module `slow` waits for."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def slow(gate: Path) -> str:
    return f"import sys\nprint('[hvd] imports', flush=True)\nopen({str(gate)!r}).read()\n"


@pytest.fixture
def importing(gate: Path) -> Iterator[Worker]:
    """A worker whose warm process still imports the module `slow`."""
    with make_worker({"slow": slow(gate)}) as worker, warm_up(worker, ["slow"]):
        yield worker


@dataclass(frozen=True)
class Watched:
    """A worker, and the process that watches the one that imports."""

    worker: Worker
    watching: int

    def wait_for_import(self, number: int) -> None:
        """Wait until the modules were imported so often."""
        wait_until(lambda: self.worker.log.count("imported framework") == number, 20, "it imports")

    def kill(self, number: int) -> None:
        """Kill the process that has imported the modules, the first one or a later one."""
        self.wait_for_import(number)
        (importing,) = list_children(self.watching)
        os.kill(importing, signal.SIGKILL)


@pytest.fixture
def watched() -> Iterator[Watched]:
    with make_worker() as worker, warm_up(worker) as process:
        (watching,) = list_children(process.pid)
        yield Watched(worker, watching)


def open_to_all(*paths: Path) -> None:
    for path in paths:
        path.chmod(0o777)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
def test_signal_of_the_launcher_reaches_the_script(warm_worker: Worker, number: int) -> None:
    with run_rank(warm_worker, WAITS) as (client, (rank, orphan, _)):
        assert rank != client.pid, "the rank is no fork"
        client.send_signal(number)
        output, errors = client.communicate(timeout=60)
        ended = (output, client.returncode)
        assert ended == (f"got {number}\n".encode(), 40 + number), errors.decode()
        assert not is_alive(orphan), "a failed rank has left a process"


def test_finished_rank_leaves_no_process(warm_worker: Worker) -> None:
    """A launcher waits for all that have the rank's output."""
    ends = WAITS.replace("sys.exit(40 + number)", "sys.exit(0)")
    with run_rank(warm_worker, ends) as (client, (_, orphan, _)):
        client.terminate()
        client.communicate(timeout=60)
        assert client.returncode == 0
        assert not is_alive(orphan)


@pytest.mark.promise("rank dies with its client and all that it has started")
def test_rank_dies_with_its_client_and_all_that_it_has_started(warm_worker: Worker) -> None:
    """A launcher kills the process that it started, which cannot pass this signal on."""
    with run_rank(warm_worker, WAITS) as (client, pids):
        client.kill()
        client.communicate()
    wait_until(lambda: not any(is_alive(pid) for pid in pids), 20, "all of the rank is gone")


@pytest.mark.parametrize("is_file", [False, True])
def test_rank_that_needs_no_framework_does_not_wait_for_an_import(
    importing: Worker, tmp_path: Path, is_file: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom os import path\nprint('runs')\n")
    words = [str(script)] if is_file else ["-c", "print('runs')"]
    done = importing.run("python3", *words)
    assert b"start cold: " in done.stdout
    assert done.stdout.endswith(b"runs\n")


def test_rank_waits_for_an_import_that_is_running(importing: Worker, gate: Path) -> None:
    with importing.start("python3", "-c", "import slow, os; print('runs')") as client:
        assert client.stdout is not None
        assert b"rank 0 of 1" in client.stdout.readline()
        gate.write_text("")
        assert client.communicate(timeout=60)[0] == b"runs\n"
    assert importing.log.count("[hvd] imports") == 1, "the rank has imported it again"


def test_rank_that_needs_no_framework_is_a_fork_when_the_import_has_ended(
    importing: Worker, gate: Path
) -> None:
    gate.write_text("")
    ready = importing.root / "generated" / "warm.ready"
    wait_until(ready.exists, 20, "the modules are imported")
    assert importing.show("print('runs')") == "runs\n", "there is no reason to start cold"


def test_killed_warm_process_ends_no_rank(watched: Watched) -> None:
    with run_rank(watched.worker, WAITS) as (client, _):
        watched.kill(1)
        wait_until(lambda: "the warm process ended" in watched.worker.log, 20, "it is noticed")
        client.send_signal(signal.SIGTERM)
        assert client.wait(60) == 40 + signal.SIGTERM


def test_killed_warm_process_imports_again_after_the_last_of_its_ranks(watched: Watched) -> None:
    """Importing again would take the memory that the running rank may need."""
    worker = watched.worker
    with run_rank(worker, WAITS):
        watched.kill(1)
        wait_until(lambda: "the warm process ended" in worker.log, 20, "it is noticed")
        other = worker.run("python3", "-c", "import framework; print('runs')")
        assert b"start cold: " in other.stdout
        assert other.stdout.endswith(b"runs\n")
    watched.wait_for_import(2)
    assert "cold" not in worker.show("import framework")


def test_warm_process_that_is_killed_three_times_is_given_up(watched: Watched) -> None:
    watched.kill(1)
    watched.kill(2)
    watched.kill(3)
    wait_until(lambda: not is_alive(watched.watching), 20, "it gives up")
    assert "ranks start cold from now on" in watched.worker.log
    assert "start cold: " in watched.worker.show("import framework")


def test_clients_that_send_nonsense_do_not_end_the_warm_process(watched: Watched) -> None:
    send_nonsense(watched.worker)
    assert "cold" not in watched.worker.show("import framework")


def test_warm_process_ends_with_its_worker() -> None:
    with make_worker() as worker:
        with warm_up(worker) as process:
            (watching,) = list_children(process.pid)
            (importing,) = list_children(watching)
            assert os.getsid(watching) == watching, "what ends the worker's session would end it"
        wait_until(lambda: not is_alive(watching) and not is_alive(importing), 20, "both are gone")


@pytest.mark.promise("socket is open to the workers user only")
def test_socket_is_open_to_the_workers_user_only(warm_worker: Worker) -> None:
    files = [warm_worker.root / "generated" / name for name in ("warm.sock", "warm.json")]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.promise("other user gets no fork")
def test_other_user_gets_no_fork() -> None:
    """Also where the socket's mode does not keep it out."""
    ask = (
        "import os, socket, sys; os.setuid(4321); s = socket.socket(socket.AF_UNIX); "
        "s.connect(sys.argv[1]); print(s.recv(10))"
    )
    with make_worker() as worker, warm_up(worker):
        open_to_all(worker.root, worker.root / "generated", worker.socket)
        done = subprocess.run(
            [sys.executable, "-I", "-c", ask, str(worker.socket)], capture_output=True, check=False
        )
        assert done.stdout == b"b''\n", done.stderr
        assert "another user" in worker.log
        assert "cold" not in worker.show("import framework"), "its own user is still served"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.promise("rank is not handed to another user")
def test_rank_is_not_handed_to_another_user() -> None:
    """Its environment may have secrets."""
    listen = (
        "import os, socket, sys; os.setuid(4321); s = socket.socket(socket.AF_UNIX); "
        "s.bind(sys.argv[1]); s.listen(); print(flush=True); sys.stdin.read()"
    )
    with make_worker() as worker, warm_up(worker):
        open_to_all(worker.root, worker.root / "generated")
        worker.socket.unlink()
        command = [sys.executable, "-I", "-c", listen, str(worker.socket)]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            done = worker.run("python3", "-c", "print('runs')")
            other.communicate()
    assert b"start cold: " in done.stdout
    assert b"another user" in done.stdout
    assert done.stdout.endswith(b"runs\n")
