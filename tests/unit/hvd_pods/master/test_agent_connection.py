"""What a master says of a worker that it cannot use: agents with other keys, and other servers."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hvd_pods.master import agent_connection
from hvd_pods.master.agent_connection import AgentAddresses, AgentConnectionError
from hvd_pods.protocol import frames
from hvd_pods.protocol.banner import find_banner_problem, format_banner
from hvd_pods.protocol.keys import (
    EXPIRED,
    KEYS_DIFFER,
    KEYS_REMEDY,
    NOT_YET_VALID,
    OF_OTHER_RELEASE,
    Keys,
)
from hvd_pods.protocol.start_request import StartRequest
from hvd_pods.shared.errors import ConfigurationError
from tests.support.fakes.worker import FakeWorker
from tests.support.ports import find_port
from tests.support.release_keys import MASTER_NAME, WORKER_NAME, ReleaseKeys, keys_of_another_time
from tests.unit.hvd_pods.support.common_authority import CommonAuthority
from tests.unit.hvd_pods.support.programs import Program, make_request

TRUE = make_request(["true"])


@contextmanager
def agent_of(keys: Keys, *sent: tuple[bytes, bytes], tls_1_2: bool = False) -> Iterator[int]:
    """An agent with these keys that sends these frames to a master; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(format_banner("r1"))
                    context = keys.server()
                    if tls_1_2:
                        context.minimum_version = ssl.TLSVersion.TLSv1_2
                        context.maximum_version = ssl.TLSVersion.TLSv1_2
                    with context.wrap_socket(connection, server_side=True) as tls:
                        for kind, content in sent:
                            tls.sendall(frames.FRAME_HEADER.pack(kind, len(content)) + content)
                        while tls.recv(4096):
                            continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


def problem_of(port: int, keys: Keys, request: StartRequest = TRUE) -> AgentConnectionError:
    """Return why an agent connection is of no use."""
    with (
        Program("127.0.0.1", port, keys, request) as program,
        pytest.raises(AgentConnectionError) as problem,
    ):
        program.wait()
    return problem.value


@pytest.fixture
def keys(release: ReleaseKeys, tmp_path: Path) -> Keys:
    """The master's."""
    return release.of_master(tmp_path / "master")


def check_keys_problem(worker: ReleaseKeys, master: ReleaseKeys, folder: Path, said: str) -> None:
    """Check that a master and a worker of two releases do not connect, and what is said."""
    with agent_of(worker.of_worker(folder / "worker"), (frames.HELLO, b"n")) as port:
        problem = problem_of(port, master.of_master(folder / "master"))
    assert said in str(problem)
    assert problem.is_sure, "another attempt cannot help"


@pytest.mark.promise("worker of another release is refused")
def test_worker_of_another_release_is_refused(tmp_path: Path, release: ReleaseKeys) -> None:
    check_keys_problem(ReleaseKeys(), release, tmp_path, KEYS_DIFFER)


@pytest.mark.parametrize(
    "name",
    [
        MASTER_NAME,
        "worker-2.hvd.team.horovod.internal",
        "worker-1.other.team.horovod.internal",
        "worker-1.hvd.other.horovod.internal",
    ],
)
def test_worker_of_the_same_authority_with_another_name_is_refused(
    tmp_path: Path, name: str
) -> None:
    authority = CommonAuthority()
    master = authority.release(MASTER_NAME, WORKER_NAME)
    worker = authority.release(MASTER_NAME, WORKER_NAME)
    worker.worker = authority.files(name)
    said = f"{OF_OTHER_RELEASE}{WORKER_NAME}: {KEYS_REMEDY}"
    check_keys_problem(worker, master, tmp_path, said)


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (-3660.0, f"{EXPIRED}: {KEYS_REMEDY}"),
        (30.0, NOT_YET_VALID),
    ],
)
def test_worker_whose_certificate_is_not_valid_now_is_refused(
    tmp_path: Path, days: float, said: str
) -> None:
    release = keys_of_another_time(days)
    check_keys_problem(release, release, tmp_path, said)


def test_worker_that_does_not_know_the_master_is_quoted(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    worker = ReleaseKeys()
    worker.worker = release.worker
    check_keys_problem(worker, release, tmp_path, "TLSV1_ALERT_UNKNOWN_CA")


def test_worker_with_tls_1_2_only_is_refused(
    tmp_path: Path, release: ReleaseKeys, keys: Keys
) -> None:
    with agent_of(release.of_worker(tmp_path / "worker"), tls_1_2=True) as port:
        assert "protocol" in str(problem_of(port, keys)).lower()


@pytest.mark.parametrize(
    ("sent", "banner"),
    [
        (b"SSH-2.0-OpenSSH_9.2 hvd-r1\r\n", "SSH-2.0-OpenSSH_9.2 hvd-r1"),
        (b"\xff\x00" * 200, "\ufffd\0" * 128 + "\ufffd"),
        (b"", ""),
    ],
    ids=["ssh", "endless", "nothing"],
)
def test_server_that_is_no_agent_is_named(keys: Keys, sent: bytes, banner: str) -> None:
    with FakeWorker(sent) as worker:
        problem = problem_of(worker.port, keys)
    expected = find_banner_problem(banner, worker.port)
    assert expected
    assert str(problem) == expected.reason


def test_worker_at_which_nothing_listens_is_named(keys: Keys) -> None:
    port = find_port()
    assert str(problem_of(port, keys)) == f"port {port} of 127.0.0.1: Connection refused"


def test_worker_that_does_not_answer_is_given_up(keys: Keys) -> None:
    with (
        FakeWorker(format_banner("r1")) as worker,
        Program("127.0.0.1", worker.port, keys, TRUE) as program,
    ):
        assert (
            5
            < program.connection.due - time.monotonic()
            <= agent_connection.HANDSHAKE_TIMEOUT_SECONDS
        )
        program.connection.due = time.monotonic() + 0.1
        with pytest.raises(AgentConnectionError, match="timed out"):
            program.wait()


HELLO = (frames.HELLO, b"n")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([HELLO, HELLO], id="two nonces"),
        pytest.param([(frames.REQUEST, b"{}")], id="request"),
        pytest.param([HELLO, (frames.INPUT, b"x")], id="input"),
        pytest.param([HELLO, (frames.STAY, b"")], id="stay"),
        pytest.param([HELLO, (frames.EXIT, b"12345")], id="exit"),
        pytest.param([HELLO, (b"\0", b"")], id="unknown"),
    ],
)
def test_frames_that_no_agent_sends_end_the_connection(
    tmp_path: Path, release: ReleaseKeys, keys: Keys, sent: list[tuple[bytes, bytes]]
) -> None:
    with agent_of(release.of_worker(tmp_path / "worker"), *sent) as port:
        assert not problem_of(port, keys).is_sure


def test_text_of_a_worker_that_is_no_text_is_shown(
    tmp_path: Path, release: ReleaseKeys, keys: Keys
) -> None:
    with agent_of(
        release.of_worker(tmp_path / "worker"), HELLO, (frames.REFUSED, b"no: \xff")
    ) as port:
        assert str(problem_of(port, keys)) == "no: \N{REPLACEMENT CHARACTER}"


def test_request_that_is_too_long_is_not_sent(
    tmp_path: Path, release: ReleaseKeys, keys: Keys
) -> None:
    with agent_of(release.of_worker(tmp_path / "worker"), HELLO) as port:
        problem = problem_of(port, keys, make_request(["x" * (1 << 16)]))
    assert " 65536 " in str(problem)
    assert problem.is_sure


def test_output_that_came_before_the_connections_end_is_taken(
    tmp_path: Path, release: ReleaseKeys, keys: Keys
) -> None:
    output = [(frames.OUTPUT, b"x" * 50_000)] * 10
    worker = release.of_worker(tmp_path / "worker")
    with (
        agent_of(worker, HELLO, *output, (b"\0", b"")) as port,
        Program("127.0.0.1", port, keys, TRUE) as program,
    ):
        with pytest.raises(AgentConnectionError):
            program.wait()
        assert len(program.output) == 500_000


class TestWhere:
    """How programs of the master's pod find its workers."""

    WHERE = AgentAddresses(2222, {"hvd-0": "10.0.0.1", "hvd-0.hvd": "10.0.0.1"})

    @pytest.mark.parametrize("name", ["hvd-0", "hvd-0.hvd", "10.0.0.1"])
    def test_worker_is_found_by_each_of_its_names_and_by_its_address(self, name: str) -> None:
        assert self.WHERE.address(name) == "10.0.0.1"

    @pytest.mark.parametrize("name", ["", "hvd-1", "10.0.0.2", "-oProxyCommand=x", "localhost"])
    def test_other_workers_are_refused(self, name: str) -> None:
        with pytest.raises(AgentConnectionError, match=f"^{re.escape(name)} "):
            self.WHERE.address(name)


def test_keys_that_are_missing_are_named(tmp_path: Path, release: ReleaseKeys) -> None:
    folder = release.write_master(tmp_path / "keys")
    (folder / "peer-ca.crt").unlink()
    with pytest.raises(ConfigurationError, match=r"peer-ca\.crt.*agent\.generation"):
        Keys(str(folder), WORKER_NAME)


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "peer-ca.crt"])
def test_keys_that_are_no_keys_are_named(tmp_path: Path, release: ReleaseKeys, name: str) -> None:
    folder = release.write_master(tmp_path / "keys")
    (folder / name).write_text("garbage")
    with pytest.raises(ConfigurationError, match=re.escape(str(folder))):
        Keys(str(folder), WORKER_NAME).client()
