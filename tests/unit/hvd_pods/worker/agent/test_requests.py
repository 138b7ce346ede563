"""What an agent refuses to a master of its release: each request that is not exactly right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.protocol import frames
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.worker.agent.clients import GOOD, Client, connect_as_master
from tests.unit.hvd_pods.worker.agent.limited import LimitedAgent, start_limited

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, release: ReleaseKeys) -> Iterator[LimitedAgent]:
    with start_limited(tmp_path_factory.mktemp("agent"), release, lines=1000) as started:
        yield started


@pytest.fixture
def master(agent: LimitedAgent, tmp_path: Path) -> Iterator[tuple[Client, str]]:
    """A connection of the master's, and its nonce."""
    with connect_as_master(agent, tmp_path, agent.release) as found:
        yield found


def read_to_the_end(client: Client) -> list[tuple[bytes, bytes]]:
    found = []
    try:
        while True:
            found.append(client.receive())
    except OSError:
        return found


def test_request_with_the_nonce_of_its_connection_is_served(
    master: tuple[Client, str],
) -> None:
    client, nonce = master
    client.ask(nonce, ["echo", "started"])
    assert client.receive() == (frames.OUTPUT, b"started\n")
    assert client.receive() == (frames.EXIT, frames.NUMBER.pack(0))


CHANGES: list[dict[str, Any]] = [
    {"nonce": "0" * 32},
    {"nonce": None},
    {"environment": {}},
    {"variables": {"LD_PRELOAD": "/tmp/x.so"}},
    {"variables": {"PATH": "/tmp"}},
    {"variables": {"HVD_FENCE": "9"}},
    {"variables": {"HVD_NOTICES": 1}},
    {"variables": {"HVD_NOTICES": "a\0b"}},
    {"variables": []},
    {"argv": []},
    {"argv": "touch started"},
    {"argv": ["touch", 1]},
    {"argv": ["touch", "a\0b"]},
    {"argv": ["touch", "\ud800"]},
    {"argv": ["touch", *["x"] * 4096]},
    {"run": 1},
    {"run": "a\0b"},
    {"fence": "1"},
    {"fence": 1.0},
    {"fence": True},
    {"fence": -1},
    {"fence": 1 << 63},
    {"attempt": None},
    {"attempt": -1},
    {"stay": -1},
    {"stay": "1"},
    {"stay": True},
    {"stay": float("nan")},
    {"stay": float("inf")},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: json.dumps(change)[:40])
@pytest.mark.promise("request with anything unexpected starts nothing")
def test_request_with_anything_unexpected_starts_nothing(
    master: tuple[Client, str], tmp_path: Path, change: dict[str, Any]
) -> None:
    client, nonce = master
    request = {**GOOD, "nonce": nonce, "argv": ["touch", str(tmp_path / "started")], **change}
    client.send(frames.REQUEST, json.dumps(request).encode())
    ((kind, _),) = read_to_the_end(client)
    assert kind == frames.REFUSED
    assert not (tmp_path / "started").exists()


def test_request_of_more_than_64_kib_starts_nothing(
    agent: LimitedAgent, master: tuple[Client, str], tmp_path: Path
) -> None:
    client, nonce = master
    before = len(agent.log)
    # The agent ends the connection when it has read how long the frame is.
    with suppress(OSError):
        client.ask(nonce, ["touch", str(tmp_path / "started"), "x" * (1 << 16)])
    assert [kind for kind, _ in read_to_the_end(client)] == []
    assert not (tmp_path / "started").exists()
    wait_until(lambda: "at most 65536 are allowed" in agent.log[before:], 20, "it is told")


@pytest.mark.promise("request is not served on another connection")
def test_request_is_not_served_on_another_connection(
    agent: LimitedAgent, master: tuple[Client, str], tmp_path: Path
) -> None:
    """Whoever has recorded a request, in the master's own memory, cannot repeat it."""
    _, nonce = master
    with connect_as_master(agent, tmp_path, agent.release) as (other, own_nonce):
        assert nonce != own_nonce
        other.ask(nonce, ["touch", str(tmp_path / "started")])
        assert read_to_the_end(other) == [
            (frames.REFUSED, b"the request is not for this connection")
        ]
    assert not (tmp_path / "started").exists()


def test_second_request_of_a_connection_starts_nothing_and_ends_the_first(
    master: tuple[Client, str], tmp_path: Path
) -> None:
    client, nonce = master
    first = tmp_path / "first"
    second = tmp_path / "second"
    client.ask(nonce, ["sh", "-c", f"trap 'touch {first}' EXIT; echo up; cat"])
    assert client.receive() == (frames.OUTPUT, b"up\n")
    client.ask(nonce, ["touch", str(second)])
    assert read_to_the_end(client) == []
    wait_until(first.exists, 20, "the first program is ended")
    assert not second.exists()


@pytest.mark.parametrize("kind", [frames.INPUT, frames.STAY, frames.HELLO, frames.EXIT, b"\0"])
def test_another_frame_before_the_request_is_refused(
    master: tuple[Client, str], kind: bytes
) -> None:
    client, _ = master
    client.send(kind, b"")
    assert read_to_the_end(client) == [(frames.REFUSED, b"its first frame is no request")]


@pytest.mark.parametrize(
    ("kind", "content"),
    [(frames.SIGNAL, b"1"), (frames.HELLO, b""), (frames.TAKEN, b""), (b"\0", b"")],
)
@pytest.mark.promise("frame that no master sends ends the connection")
def test_frame_that_no_master_sends_ends_the_connection(
    master: tuple[Client, str], kind: bytes, content: bytes
) -> None:
    client, nonce = master
    client.ask(nonce, ["cat"])
    client.send(kind, content)
    assert read_to_the_end(client) == []


@pytest.mark.parametrize("number", [9, 19, 0, -1, 64, 1 << 30])
def test_signal_that_is_not_passed_on_does_nothing(master: tuple[Client, str], number: int) -> None:
    client, nonce = master
    client.ask(nonce, ["cat"])
    client.send(frames.SIGNAL, frames.NUMBER.pack(number))
    client.send(frames.INPUT, b"lives\n")
    assert client.receive() == (frames.OUTPUT, b"lives\n")


def test_refusal_names_no_value(agent: LimitedAgent, master: tuple[Client, str]) -> None:
    client, nonce = master
    client.ask(nonce, ["true"], variables={"HVD_NOTICES": 7, "SECRET-NAME": "secret-value"})
    ((_, said),) = read_to_the_end(client)
    assert b"secret-value" not in said
    assert "secret-value" not in agent.log


@pytest.mark.promise("argument that is no text arrives as it is")
def test_argument_that_is_no_text_arrives_as_it_is(agent: LimitedAgent) -> None:
    with agent.ask(
        ["printf", "%s", b"\xff\xfe K\xc3\xb6ln".decode("utf-8", "surrogateescape")]
    ) as it:
        assert it.wait() == 0
    assert it.output == b"\xff\xfe K\xc3\xb6ln"
