"""Ranks that are started without mpirun, and the store at which Gloo meets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import copy_files
from hvd_pods.master import direct, gateway_client
from hvd_pods.master.gateway import Gateway
from hvd_pods.master.gloo_store import MAX_INTRODUCTION_BYTES, STORE_LIMITS, GlooStore
from hvd_pods.pod.connections import Limits
from hvd_pods.shared.run import Worker
from tests.support.fakes.agents import ScriptedAgents
from tests.support.fakes.faults import TIMEOUT
from tests.support.release_keys import ReleaseKeys

WORKERS = [Worker(f"hvd-{number}", f"hvd-{number}.svc", 2, "hvd", "r1") for number in range(2)]
# What the agent of a worker with two slots runs, which takes nothing while it is held.
SCRIPT = """
while [ -e hold-$1 ]; do sleep 0.05; done
HVD_SLOTS=2 HVD_POD=${1%.svc} exec PYTHON -I -S PROGRAMS/rank/worker_ranks.py
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, release: ReleaseKeys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a shell's script as four ranks on two workers, by the gateway of a master's pod."""
    root = tmp_path / "pod"
    programs = copy_files(root, sys.executable) / "hvd_pods"
    (root / "generated").mkdir()
    agents = ScriptedAgents(release, tmp_path, WORKERS)
    script = SCRIPT.replace("PYTHON", sys.executable).replace("PROGRAMS", str(programs))
    agents.install(script)
    monkeypatch.setattr(gateway_client, "GATEWAY_SOCKET", str(root / "generated" / "gateway.sock"))
    Gateway(lambda: agents.access, lambda event: None).start()
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("hvd-0.svc slots=2\nhvd-1.svc slots=2\n")

    def run(script: str, stay: str = "60") -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "HVD_NOTICES": "127.0.0.1,1,secret",
            "HVD_RENDEZVOUS": "127.0.0.1 61998 hvd:0-1",
            "HVD_ORPHAN_SECONDS": stay,
            # As a variable of master.env.
            "TOKEN": "hunter2",
        }
        words = ["4", "sh", "-c", script]
        program = str(programs / "master/direct.py")
        command = [sys.executable, "-I", "-S", program, str(hostfile), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True
        )

    yield run
    agents.close()


def own_lines(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if not line.startswith("[hvd"))


def leave(start: Start, folder: Path, stay: str) -> None:
    """Let a master leave its ranks, which may go on for `stay` seconds."""
    waits = "until [ -e go-on ]; do sleep 0.05; done; for _ in 1 2 3; do echo x; sleep 0.1; done"
    process = start(f"touch began-$RANK; {waits}; touch done-$RANK", stay=stay)
    wait_until(lambda: len([*folder.glob("began-*")]) == 4, TIMEOUT, "the ranks run")
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGUSR1


def ranks_in(folder: Path) -> list[int]:
    """The scripts that run in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").samefile(folder) and b"sh\0" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


class Store:
    """A store that serves, and what its clients ask it for."""

    def __init__(self, limits: Limits = STORE_LIMITS) -> None:
        served = GlooStore("127.0.0.1", "s3cret", limits)
        self.port = served.port
        threading.Thread(target=served.serve, daemon=True).start()

    def ask(self, request: str, body: bytes = b"") -> bytes:
        """The answer to a request; empty where there is none."""
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT) as connection:
            size = f"Content-Length: {len(body)}\r\n" if body else ""
            # The store ends a stranger's connection before it has read all of it.
            with contextlib.suppress(ConnectionError):
                connection.sendall(f"{request} HTTP/1.1\r\nHost: x\r\n{size}\r\n".encode())
                # Horovod may send a body apart from what precedes it.
                connection.sendall(body)
                return b"".join(iter(lambda: connection.recv(4096), b""))
            return b""

    def status(self, request: str, body: bytes = b"") -> int:
        """The status of the answer."""
        return int(self.ask(request, body).split()[1])

    def introduce(self, secret: str) -> bytes:
        """What the store says to who shows it a secret."""
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT) as connection:
            connection.sendall(f"HVD {secret} HTTP/1.0\r\n\r\n".encode())
            return connection.recv(100)


@pytest.fixture
def store() -> Store:
    """A store that knows nobody yet."""
    return Store()


@pytest.fixture
def known(store: Store) -> Store:
    """A store to which this address has shown the secret."""
    assert store.introduce("s3cret") == b"known"
    return store


def test_ranks_know_their_place_and_their_lines_stay_whole(start: Start, tmp_path: Path) -> None:
    parts = "for part in $RANK $LOCAL_RANK $NODE_RANK $HOROVOD_CROSS_RANK; do printf %s $part; done"
    script = f"{parts}; printf '/%s\\n' $HOROVOD_CROSS_SIZE; pwd >&2; printf no-end"
    output, errors = start(script).communicate(timeout=TIMEOUT)
    assert own_lines(output) == ["0000/2", "1100/2", "2011/2", "3111/2", *["no-end"] * 4]
    assert own_lines(errors) == [str(tmp_path)] * 4


def test_ranks_get_no_variables_of_the_master(start: Start) -> None:
    """A Secret in master.env is for the master alone."""
    output, _ = start('printf "%s\\n" "${TOKEN-none}"').communicate(timeout=TIMEOUT)
    assert own_lines(output) == ["none"] * 4


def test_lines_name_their_rank_where_that_is_asked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVD_TAG_OUTPUT", "1")
    script = "printf 'one\\n\\ntwo\\n'; printf '1%%\\r' >&2; printf '2%%\\r\\nend' >&2"
    output, errors = start(script).communicate(timeout=TIMEOUT)
    own = [line for line in output.splitlines() if line.startswith("[3]") and "[hvd" not in line]
    assert own == ["[3]<stdout>:one", "[3]<stdout>:", "[3]<stdout>:two"]
    # A progress bar begins its line once.
    assert errors.count("[3]<stderr>:1%") == 1
    assert "[3]<stderr>:2%" not in errors
    assert errors.count("[3]<stderr>:end\n") == 1


@pytest.mark.parametrize(
    ("fails", "code", "words"),
    [
        ("echo Sorry >&2; exit 7", 7, "ended with exit code 7"),
        ("kill -KILL $$", 137, "ended by signal 9"),
    ],
)
def test_first_rank_that_fails_ends_the_others_at_once(
    fails: str, code: int, words: str, start: Start, tmp_path: Path
) -> None:
    """Also those that wait in a collective of the lost rank, where no handler would run."""
    waits = "trap '' TERM; touch began-$RANK; while :; do sleep 0.02; done"
    others = "for one in 0 1 3; do until [ -e began-$one ]; do sleep 0.02; done; done"
    process = start(f"if [ $RANK = 2 ]; then {others}; {fails}; else {waits}; fi")
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code
    own = [line for line in errors.splitlines() if " ended " in line]
    assert own == [f"[hvd] rank 2 on {socket.gethostname()} {words}"]
    wait_until(lambda: not ranks_in(tmp_path), TIMEOUT, "no rank is left")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["asked to end", "killed"],
)
def test_ranks_end_with_their_master(start: Start, tmp_path: Path, number: int, code: int) -> None:
    process = start("sleep 600")
    wait_until(lambda: len(ranks_in(tmp_path)) >= 4, TIMEOUT, "the ranks run")
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == code
    wait_until(lambda: not ranks_in(tmp_path), TIMEOUT, "the ranks have ended")


def test_ranks_that_are_left_continue_whatever_they_print(start: Start, tmp_path: Path) -> None:
    leave(start, tmp_path, stay="60")
    (tmp_path / "go-on").touch()
    wait_until(lambda: len([*tmp_path.glob("done-*")]) == 4, TIMEOUT, "they have gone on")


def test_ranks_that_are_left_end_when_their_time_is_over(start: Start, tmp_path: Path) -> None:
    leave(start, tmp_path, stay="0.1")
    wait_until(lambda: not ranks_in(tmp_path), TIMEOUT, "the ranks have ended")


def test_worker_that_does_not_read_yet_delays_no_other(start: Start, tmp_path: Path) -> None:
    """The command line is longer than a pipe takes."""
    (tmp_path / "hold-hvd-0.svc").touch()
    output, _ = start(f"rm -f hold-hvd-0.svc; echo $RANK; : {'x' * 100_000}").communicate(
        timeout=TIMEOUT
    )
    assert own_lines(output) == ["0", "1", "2", "3"]


def test_places_of_workers_of_different_size_are_horovods() -> None:
    """As horovodrun numbers them: among the workers that have a rank of the same local number."""
    placed = direct.place_ranks([("a", 1), ("b", 3), ("c", 2)])
    names = ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    numbers = [
        [int(variables[f"HOROVOD_{name}"]) for name in names]
        for ranks in placed
        for variables in ranks
    ]
    assert numbers == [
        [0, 0, 1, 0, 3],
        [1, 0, 3, 1, 3],
        [2, 1, 3, 0, 2],
        [3, 2, 3, 0, 1],
        [4, 0, 2, 2, 3],
        [5, 1, 2, 1, 2],
    ]
    assert [ranks[0]["HOROVOD_HOSTNAME"] for ranks in placed] == ["a", "b", "c"]
    assert {variables["HOROVOD_SIZE"] for ranks in placed for variables in ranks} == {"6"}


VALUE = bytes(range(256)) * 40


@pytest.mark.promise("store takes little from a stranger")
def test_store_takes_little_from_a_stranger() -> None:
    """Strangers filled 222 MiB of the master before they were asked for the secret."""
    store = Store(STORE_LIMITS._replace(seconds=TIMEOUT))
    with socket.create_connection(("127.0.0.1", store.port), TIMEOUT) as connection:
        connection.sendall(b"x" * MAX_INTRODUCTION_BYTES)
        connection.settimeout(TIMEOUT / 2)
        assert connection.recv(1) == b"", "the request has no end yet"


@pytest.mark.promise("store answers only addresses that have shown the secret")
def test_store_answers_only_addresses_that_have_shown_the_secret(store: Store) -> None:
    answers = [store.ask("PUT /global/0", VALUE), store.introduce("guessed")]
    assert [*answers, store.ask("GET /global/0")] == [b""] * 3
    assert store.introduce("s3cret") == b"known"
    assert store.status("GET /global/0") == 404


def test_store_has_what_it_was_given_until_that_is_deleted(known: Store) -> None:
    assert known.status("PUT /global/0", VALUE) == 200
    assert known.ask("GET /global/0").endswith(b"\r\n\r\n" + VALUE)
    assert known.status("DELETE /global/0") == 200
    assert known.status("GET /global/0") == 404


def test_store_refuses_what_would_fill_the_masters_memory(known: Store) -> None:
    full = [known.status(f"PUT /own/{number}", b"x" * 250_000) for number in range(300)]
    assert (full[0], full[-1]) == (200, 507)
