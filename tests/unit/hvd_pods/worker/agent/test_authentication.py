"""Who is no master of the release starts nothing: an agent, and clients with other keys."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.cluster.certificates import MASTER, Files, make_files
from hvd_pods.master.agent_connection import AgentConnectionError
from hvd_pods.protocol import frames
from hvd_pods.protocol.keys import EXPIRED, NOT_OF_MASTER, NOT_YET_VALID, REFUSES_MASTER
from tests.support.release_keys import MASTER_NAME, WORKER_NAME, ReleaseKeys, keys_of_another_time
from tests.unit.hvd_pods.support.common_authority import CommonAuthority
from tests.unit.hvd_pods.support.programs import Program, make_request
from tests.unit.hvd_pods.worker.agent.clients import (
    Client,
    connect,
    connect_as_master,
    context_of,
    read_to_the_end,
    shake_hands,
)
from tests.unit.hvd_pods.worker.agent.limited import LimitedAgent, start_limited

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, release: ReleaseKeys) -> Iterator[LimitedAgent]:
    """An agent that logs all that it has to say."""
    with start_limited(tmp_path_factory.mktemp("agent"), release, lines=1000) as started:
        yield started


def try_to_start(client: Client, left: Path) -> None:
    """Do all that a client can do at once, without the nonce that it does not get."""
    client.ask("", ["/bin/touch", str(left)])
    while True:
        kind, content = client.receive()
        assert kind != frames.HELLO, "it is greeted as a master"
        assert kind == frames.REFUSED, content


def check_refusal(
    agent: LimitedAgent, folder: Path, own: Files | None, said: str, *, version: int = 0
) -> None:
    """Check that a client with this certificate starts nothing, and what the log says."""
    before = len(agent.log)
    context = context_of(folder, agent.release.worker, own)
    if version:
        context.maximum_version = ssl.TLSVersion(version)
    left = folder / "started"
    with (
        pytest.raises(OSError, match=r"(?i)alert|ended|reset|eof|broken pipe"),
        shake_hands(agent.port, context, agent.release.worker_name) as client,
    ):
        try_to_start(client, left)
    wait_until(lambda: len(agent.log) > before, 20, "the log has a line")
    assert said in agent.log[before:]
    assert not left.exists()
    assert agent.run("echo served").output == b"served\n", "others are served"


@pytest.mark.promise("client without a certificate is refused")
def test_client_without_a_certificate_is_refused(agent: LimitedAgent, tmp_path: Path) -> None:
    check_refusal(agent, tmp_path, None, "peer did not return a certificate")


@pytest.mark.promise("key of a worker is useless for asking a worker")
def test_key_of_a_worker_is_useless_for_asking_a_worker(
    agent: LimitedAgent, tmp_path: Path
) -> None:
    check_refusal(agent, tmp_path, agent.release.worker, NOT_OF_MASTER)


@pytest.mark.promise("master of another release is refused")
def test_master_of_another_release_is_refused(agent: LimitedAgent, tmp_path: Path) -> None:
    check_refusal(agent, tmp_path, ReleaseKeys().master, NOT_OF_MASTER)


def test_master_whose_own_authority_has_the_same_name_is_refused(
    agent: LimitedAgent, tmp_path: Path
) -> None:
    """Whoever makes keys can give them every name; only the signature counts."""
    forged = {**make_files(MASTER, MASTER_NAME), "ca.crt": agent.release.master["ca.crt"]}
    check_refusal(agent, tmp_path, forged, NOT_OF_MASTER)


@pytest.mark.parametrize(("days", "said"), [(-3660.0, EXPIRED), (30.0, NOT_YET_VALID)])
def test_master_whose_certificate_is_not_valid_now_is_refused_and_notified(
    tmp_path: Path, days: float, said: str
) -> None:
    release = keys_of_another_time(days)
    release.worker = ReleaseKeys().worker
    started = tmp_path / "started"
    with start_limited(tmp_path / "agent", release) as agent:
        keys = release.of_master(tmp_path / "master")
        with Program(
            "127.0.0.1", agent.port, keys, make_request(["touch", str(started)])
        ) as program:
            with pytest.raises(AgentConnectionError, match=f"{REFUSES_MASTER}.*{said}") as refused:
                program.wait()
            assert refused.value.is_sure, "another attempt cannot help"
        wait_until(lambda: said in agent.log, 20, "the log has the reason")
    assert not started.exists()


def test_clocks_that_differ_by_hours_keep_no_master_out(tmp_path: Path) -> None:
    """Helm's certificates begin when they are made, by the clock of the machine where it runs."""
    release = keys_of_another_time(0.5)
    with start_limited(tmp_path / "agent", release) as agent:
        keys = release.of_master(tmp_path / "master")
        with Program("127.0.0.1", agent.port, keys, make_request(["true"])) as program:
            assert program.wait() == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(WORKER_NAME, id="worker"),
        pytest.param("master-1.other.team.horovod.internal", id="release"),
        pytest.param("master-1.hvd.other.horovod.internal", id="namespace"),
        pytest.param("master-2.hvd.team.horovod.internal", id="generation"),
        pytest.param("*.hvd.team.horovod.internal", id="wildcard"),
    ],
)
@pytest.mark.promise("certificate of the same authority with another name is refused")
def test_certificate_of_the_same_authority_with_another_name_is_refused(
    tmp_path: Path, name: str
) -> None:
    """An authority that a team brings signs for workers, and for other releases, too."""
    authority = CommonAuthority()
    release = authority.release(MASTER_NAME, WORKER_NAME)
    context = context_of(tmp_path, release.worker, authority.files(name))
    with start_limited(tmp_path / "agent", release) as agent:
        with (
            pytest.raises(OSError, match=r"(?i)ended|reset|eof"),
            shake_hands(agent.port, context, WORKER_NAME) as client,
        ):
            try_to_start(client, tmp_path / "started")
        assert agent.run("echo served").output == b"served\n"
        wait_until(lambda: f" {MASTER_NAME}" in agent.log, 20, "the log has the reason")
    assert not (tmp_path / "started").exists()


@pytest.mark.promise("TLS 1.2 is refused")
def test_tls_1_2_is_refused(agent: LimitedAgent, tmp_path: Path) -> None:
    own = agent.release.master
    check_refusal(
        agent, tmp_path, own, "unsupported protocol", version=ssl.TLSVersion.TLSv1_2.value
    )


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        frames.FRAME_HEADER.pack(frames.REQUEST, 2) + b"{}",
    ],
    ids=["http", "ssh", "frame"],
)
@pytest.mark.promise("plain text is refused and not repeated in the log")
def test_plain_text_is_refused_and_not_repeated_in_the_log(
    agent: LimitedAgent, content: bytes
) -> None:
    before = len(agent.log)
    with connect(agent.port) as connection:
        connection.sendall(content)
        received = read_to_the_end(connection)
    # An alert of TLS is all that it is told.
    assert received[:1] in (b"", b"\x15")
    wait_until(lambda: "is refused: " in agent.log[before:], 20, "the log has the reason")
    assert "worker" not in agent.log[before:].replace("worker's", "")


@pytest.mark.promise("no session can be resumed without the certificate")
def test_no_session_can_be_resumed_without_the_certificate(
    agent: LimitedAgent, tmp_path: Path
) -> None:
    context = context_of(tmp_path, agent.release.worker, agent.release.master)
    with shake_hands(agent.port, context, WORKER_NAME) as client:
        client.ask(client.receive()[1].decode(), ["/bin/true"])
        client.receive_until(frames.EXIT)
        session = client.connection.session
        assert session is None or not session.has_ticket
    with shake_hands(agent.port, context, WORKER_NAME, session) as client:
        assert client.receive()[0] == frames.HELLO
        assert not client.connection.session_reused


@pytest.mark.promise("keys that are replaced are those of the next connection")
def test_keys_that_are_replaced_are_those_of_the_next_connection(tmp_path: Path) -> None:
    first = ReleaseKeys()
    second = ReleaseKeys()
    with start_limited(tmp_path / "agent", first) as agent:
        with agent.shell("echo up; read line; echo $line") as running:
            running.read_until(b"up\n")
            second.write_worker(agent.keys_folder)
            with (
                pytest.raises(OSError, match=r"(?i)alert|verify failed"),
                connect_as_master(agent, tmp_path, first),
            ):
                pass
            with connect_as_master(agent, tmp_path, second):
                pass
            running.give(b"continues\n")
            assert running.wait() == 0
        assert running.output == b"continues\n"


def test_keys_that_are_half_replaced_let_nobody_in_and_are_reported(tmp_path: Path) -> None:
    release = ReleaseKeys()
    with start_limited(tmp_path / "agent", release) as agent:
        (agent.keys_folder / "tls.key").write_bytes(ReleaseKeys().worker["tls.key"])
        with (
            pytest.raises(OSError, match=r"(?i)eof|reset|ended"),
            connect_as_master(agent, tmp_path, release),
        ):
            pass
        wait_until(lambda: f"{agent.keys_folder} " in agent.log, 20, "the log tells why")
        release.write_worker(agent.keys_folder)
        assert agent.run("echo served").output == b"served\n"
