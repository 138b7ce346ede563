"""Clients that connect and do nothing, or much, keep no master out of a worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.master.agent_connection import AgentConnectionError
from hvd_pods.worker.limits import choose_limits
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.support.programs import Program
from tests.unit.hvd_pods.worker.agent.clients import ask_as_browsers_do, connect, connect_as_master
from tests.unit.hvd_pods.worker.agent.limited import LimitedAgent, start_limited

pytestmark = pytest.mark.slow


@contextmanager
def silent(agent: LimitedAgent, number: int, source: str) -> Iterator[list[socket.socket]]:
    """Clients of an address that send nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(agent.port, source)) for _ in range(number)]


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def start_echo(agent: LimitedAgent, stack: ExitStack) -> Program:
    """A program that writes what it reads, until the end of the stack."""
    program = stack.enter_context(agent.shell("echo up; cat"))
    program.read_until(b"up\n")
    return program


def echo(program: Program, line: bytes) -> bytes:
    program.give(line)
    return program.read_until(line)


def end_input(program: Program) -> int:
    """Let a program come to its end; its exit code."""
    program.give(b"")
    code = program.wait()
    program.close()
    return code


def connect_often(stack: ExitStack, port: int, times: int) -> None:
    """Connect without waiting for the agent's first line, until the end of the stack."""
    for _ in range(times):
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))


def check_served(agent: LimitedAgent) -> None:
    assert agent.run("echo served").output == b"served\n"


def is_served(agent: LimitedAgent) -> bool:
    try:
        return agent.run("echo served").output == b"served\n"
    except AgentConnectionError:
        return False


@pytest.fixture
def agent_with_number_9(tmp_path: Path, release: ReleaseKeys) -> Iterator[LimitedAgent]:
    with start_limited(tmp_path / "agent", release) as agent:
        assert agent.run("true", 9).exit_code == 0
        yield agent


@pytest.mark.parametrize("files", [1 << 20, -1])
def test_limits_of_a_worker_leave_room_for_its_ranks_and_all_workers(files: int) -> None:
    limits = choose_limits(8, 512, files)
    assert limits.per_address == 24
    assert limits.pending_clients == 4 * 24 + 512
    assert limits.agent_connections == 1024


def test_limits_of_a_worker_fit_into_the_files_that_it_may_open() -> None:
    """Many container runtimes allow a process 1024 files."""
    limits = choose_limits(8, 512, 1024)
    assert limits.pending_clients + 5 * limits.agent_connections < 1024 - 16
    assert limits.agent_connections > 90


def test_silent_clients_of_an_address_are_few_and_the_oldest_goes_first(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    with (
        start_limited(tmp_path / "agent", release, per_address=3, pending_clients=100) as agent,
        silent(agent, 1, "127.0.0.3") as other,
        silent(agent, 5, "127.0.0.2") as clients,
    ):
        wait_until(lambda: not is_open(clients[1]), 20, "the second one has made room")
        assert [is_open(client) for client in clients] == [False, False, True, True, True]
        assert is_open(other[0]), "another address made room"
        check_served(agent)


@pytest.mark.promise("silent clients of many addresses are few and the oldest goes first")
def test_silent_clients_of_many_addresses_are_few_and_the_oldest_goes_first(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    with (
        start_limited(tmp_path / "agent", release, per_address=3, pending_clients=5) as agent,
        ExitStack() as stack,
    ):
        clients = [
            stack.enter_context(connect(agent.port, f"127.0.2.{number}")) for number in range(1, 9)
        ]
        wait_until(lambda: not is_open(clients[2]), 20, "the third one has made room")
        assert [is_open(client) for client in clients] == [False] * 3 + [True] * 5
        check_served(agent)
        # The master was one more.
        assert [is_open(client) for client in clients] == [False] * 4 + [True] * 4


def test_agent_connections_are_none_of_the_clients_that_make_room(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    with (
        start_limited(tmp_path / "agent", release, per_address=2, pending_clients=2) as agent,
        ExitStack() as stack,
    ):
        programs = [start_echo(agent, stack) for _ in range(4)]
        with silent(agent, 10, "127.0.0.1"):
            assert [echo(program, b"still\n") for program in programs] == [b"still\n"] * 4


@pytest.mark.parametrize("content", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
@pytest.mark.promise("client that stalls is given up and delays nobody")
def test_client_that_stalls_is_given_up_and_delays_nobody(
    tmp_path: Path, release: ReleaseKeys, content: bytes
) -> None:
    with (
        start_limited(
            tmp_path / "patient", release, silence_timeout_seconds=600, request_timeout_seconds=600
        ) as agent,
        connect(agent.port) as one,
    ):
        one.sendall(content)
        check_served(agent)
        assert is_open(one), "others waited for it"
    with (
        start_limited(
            tmp_path / "agent", release, silence_timeout_seconds=0.4, request_timeout_seconds=0.4
        ) as agent,
        connect(agent.port) as one,
    ):
        one.sendall(content)
        wait_until(lambda: not is_open(one), 20, "it is given up")
        assert (" 0.4 s" in agent.log) == bool(content)


def test_bytes_that_come_one_by_one_give_no_more_time(tmp_path: Path, release: ReleaseKeys) -> None:
    with (
        start_limited(tmp_path / "agent", release, request_timeout_seconds=0.4) as agent,
        connect(agent.port) as one,
    ):
        # The begin of a record that would be long.
        one.sendall(b"\x16\x03\x01\x3f\xff")

        def is_given_up() -> bool:
            """Sends another byte where it is not."""
            return not (is_open(one) and one.send(b"\0"))

        wait_until(is_given_up, 20, "it is given up", 0.05)


def test_master_that_asks_for_nothing_is_given_up(tmp_path: Path, release: ReleaseKeys) -> None:
    with (
        start_limited(tmp_path / "agent", release, request_timeout_seconds=0.4) as agent,
        connect_as_master(agent, tmp_path, release) as (client, _),
        pytest.raises(OSError, match=r"(?i)ended|reset|eof"),
    ):
        client.receive()


@pytest.mark.promise("log has few lines about clients and none of their content")
def test_log_has_few_lines_about_clients_and_none_of_their_content(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    with start_limited(tmp_path / "agent", release) as agent:
        ask_as_browsers_do(agent.port, times=40)
        check_served(agent)
        wait_until(lambda: "agent connection from" in agent.log, 20, "the log has the connection")
        lines = [line for line in agent.log.splitlines() if "agent: " in line]
        assert len(lines) == 20
        assert "secret" not in agent.log


def test_log_continues_about_clients_after_a_while(tmp_path: Path, release: ReleaseKeys) -> None:
    with start_limited(tmp_path / "agent", release, lines=1, lines_interval_seconds=0.3) as agent:

        def come_again() -> bool:
            ask_as_browsers_do(agent.port)
            return agent.log.count("http request") > 1

        wait_until(come_again, 20, "the log has a second line")


def test_agent_connections_are_bounded(tmp_path: Path, release: ReleaseKeys) -> None:
    with (
        start_limited(tmp_path / "agent", release, agent_connections=1) as agent,
        agent.shell("echo up; cat") as first,
    ):
        first.read_until(b"up\n")
        with pytest.raises(AgentConnectionError, match=r"^refused: .*\b1\b"):
            agent.run("echo second")
        first.give(b"")
        assert first.wait() == 0


def test_agent_with_too_few_files_refuses_and_continues(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    with (
        start_limited(tmp_path / "agent", release, files=40) as agent,
        ExitStack() as stack,
    ):
        programs: list[Program] = []
        with pytest.raises(AgentConnectionError, match="Too many open files"):
            programs.extend(start_echo(agent, stack) for _ in range(20))
        assert {end_input(program) for program in programs} == {0}
        check_served(agent)


def test_clients_wait_while_the_agent_has_too_many_open_files(
    tmp_path: Path, release: ReleaseKeys
) -> None:
    limits = {"per_address": 1000, "pending_clients": 1000, "silence_timeout_seconds": 0.5}
    with (
        start_limited(tmp_path / "agent", release, files=30, **limits) as agent,
        ExitStack() as stack,
    ):
        # Known from now on: the first use of the keys opens their files.
        check_served(agent)
        first = stack.enter_context(connect(agent.port))
        connect_often(stack, agent.port, times=60)
        wait_until(lambda: "cannot take a connection" in agent.log, 20, "files are used up")
        cpu = Path(f"/proc/{agent.process.pid}/stat")
        before = int(cpu.read_text().split()[13])
        wait_until(lambda: not is_open(first), 20, "silent clients make room", 0.05)
        assert int(cpu.read_text().split()[13]) - before < 15, "it tries again all the time"
        wait_until(lambda: is_served(agent), 20, "silent clients have made room")


def test_refusal_reaches_a_master_that_has_sent_much(agent_with_number_9: LimitedAgent) -> None:
    with agent_with_number_9.shell("cat", 8) as late:
        late.give(bytes(3_000_000))
        with pytest.raises(AgentConnectionError, match="refused: "):
            late.wait()
