"""How programs of the master's pod have programs started in workers: the gateway itself."""

from __future__ import annotations

import array
import fcntl
import json
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.master import gateway, gateway_client
from hvd_pods.master.agent_connection import AgentAddresses, AgentConnection, AgentConnectionError
from hvd_pods.master.remote import AgentAccess
from hvd_pods.pod.ranks_program import STAY
from hvd_pods.protocol import frames
from hvd_pods.protocol.keys import KEYS_DIFFER, Keys
from hvd_pods.rules.events import Event, WorkerReached
from hvd_pods.shared.errors import RunError
from tests.support.release_keys import WORKER_NAME, ReleaseKeys
from tests.unit.hvd_pods.worker.agent.limited import LimitedAgent, start_limited

pytestmark = pytest.mark.slow

HOST = "hvd-worker-0"


class Served:
    """A gateway, an agent that it reaches as hvd-worker-0, and the streams of a client."""

    def __init__(self, agent: LimitedAgent, access: AgentAccess) -> None:
        self.agent = agent
        self.access = access
        self.problem: RunError | None = None
        self.events: list[Event] = []
        self.gateway = gateway.Gateway(self._find_access, self.events.append)
        self.gateway.start()

    def _find_access(self) -> AgentAccess:
        if self.problem:
            raise self.problem
        return self.access


class Client:
    """A client of the gateway whose streams the test has."""

    def __init__(self) -> None:
        reader, self.stdin = os.pipe()
        self.stdout, out = os.pipe()
        self.stderr, errors = os.pipe()
        self.streams = [reader, out, errors]
        self._own = {self.stdin, self.stdout, self.stderr}

    def ask(self, line: str, host: str = HOST, stay: float = 0.0) -> None:
        """Ask for a program. The program's streams are then the gateway's alone."""
        self.connection = gateway_client.ask(host, ["/bin/sh", "-c", line], self.streams, stay)
        for stream in self.streams:
            os.close(stream)
        self.streams = []

    def end_input(self) -> None:
        self._own.remove(self.stdin)
        os.close(self.stdin)

    def code(self) -> int:
        self.connection.settimeout(20)
        return int(self.connection.makefile("rb").readline())

    def close(self) -> None:
        for stream in [*self.streams, *self._own]:
            os.close(stream)


class Arrived:
    """What has come to the gateway: bytes of output, and whether a program's end has."""

    def __init__(self) -> None:
        self.output = 0
        self.has_ended = False


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> Arrived:
    """What comes to the gateway from now on, also what its client has not read."""
    made = Arrived()
    step = AgentConnection.step

    def count(connection: AgentConnection) -> Iterator[tuple[bytes, bytes]]:
        for kind, content in step(connection):
            made.output += len(content) if kind == frames.OUTPUT else 0
            yield kind, content
        made.has_ended = connection.exit_code is not None

    monkeypatch.setattr(AgentConnection, "step", count)
    return made


def read(descriptor: int) -> bytes:
    content = b""
    while part := os.read(descriptor, 1 << 16):
        content += part
    return content


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, release: ReleaseKeys) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("gateway")
    keys = Keys(str(release.write_master(folder / "keys")), WORKER_NAME)
    with (
        pytest.MonkeyPatch.context() as patch,
        start_limited(folder / "agent", release, end_timeout_seconds=0.1) as agent,
    ):
        patch.setattr(gateway_client, "GATEWAY_SOCKET", str(folder / "gateway.sock"))
        where = AgentAddresses(agent.port, {HOST: "127.0.0.1"})
        yield Served(agent, AgentAccess(keys, where, {}))


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


def send(content: bytes, streams: list[int]) -> bytes:
    """Send bytes and descriptors to the gateway; return its answer, if it has one."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(ConnectionResetError):
        connection.settimeout(20)
        connection.connect(gateway_client.GATEWAY_SOCKET)
        rights = array.array("i", streams)
        connection.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()
    return b""


def open_files() -> dict[int, str]:
    """Return the descriptors of this process, and of what they are."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        # The one of the folder itself is closed already.
        with suppress(OSError):
            found[int(link.name)] = str(link.readlink())
    return found


def send_often(content: bytes, descriptors: list[int], times: int) -> None:
    for _ in range(times):
        send(content, descriptors)


def test_only_the_pods_user_may_connect(served: Served) -> None:
    assert Path(gateway_client.GATEWAY_SOCKET).stat().st_mode & 0o777 == 0o600


def test_program_has_the_streams_of_the_client(served: Served, client: Client) -> None:
    client.ask("cat; echo wrong >&2; exit 4")
    os.write(client.stdin, b"in\n")
    client.end_input()
    assert read(client.stdout) == b"in\n"
    assert read(client.stderr) == b"wrong\n"
    assert client.code() == 4


GOOD: dict[str, Any] = {"host": HOST, "argv": ["true"], "variables": {}, "stay": 0}
CHANGES: list[dict[str, Any]] = [
    {"argv": 1},
    {"variables": 1},
    {"variables": {"HVD_FENCE": "x"}},
    {"stay": "x"},
    {"stay": None},
    {"argv": []},
    {"argv": [1]},
    {"argv": ["a\0b"]},
]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b"not json\n",
        b"\xff\n",
        json.dumps(GOOD).encode(),
        *(json.dumps({**GOOD, **change}).encode() + b"\n" for change in CHANGES),
        b'{"host": "' + b"x" * (1 << 18) + b'"}\n',
    ],
    ids=lambda content: content[:40].decode("latin-1"),
)
def test_request_that_is_none_gets_the_code_of_a_failure(
    served: Served, client: Client, content: bytes
) -> None:
    assert send(content, client.streams) in (b"255\n", b"")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_request_without_all_streams_is_refused(
    served: Served, client: Client, number: int
) -> None:
    content = json.dumps(GOOD).encode() + b"\n"
    assert send(content, client.streams[:number]) == b"255\n"


def test_more_descriptors_than_three_are_not_kept(served: Served, client: Client) -> None:
    before = len(open_files())
    content = json.dumps(GOOD).encode() + b"\n"
    send_often(content, client.streams * 10, times=20)
    wait_until(lambda: len(open_files()) <= before + 2, 20, "they are closed")


def test_streams_are_inherited_by_no_other_program_of_the_master(
    served: Served, client: Client
) -> None:
    """A launcher waits for the end of a rank's output, which any copy would keep open."""
    client.ask("echo up; cat")
    assert os.read(client.stdout, 3) == b"up\n"
    files = open_files()
    pipe = files.pop(client.stdout)
    (taken,) = (number for number, file in files.items() if file == pipe)
    assert not os.get_inheritable(taken)
    client.end_input()
    assert client.code() == 0


def test_client_that_says_nothing_is_given_up(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_client, "GATEWAY_SOCKET", str(tmp_path / "gateway.sock"))
    gateway.Gateway(
        lambda: served.access, served.events.append, request_timeout_seconds=0.1
    ).start()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(gateway_client.GATEWAY_SOCKET)
        assert connection.makefile("rb").read() == b"255\n"


def test_problem_of_the_master_is_reported_to_the_client(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "problem", RunError("the API server is gone"))
    client.ask("true")
    assert client.code() == 255
    assert read(client.stderr) == b"[hvd] error: hvd-worker-0: the API server is gone\n"
    assert served.gateway.key_problem == ""


def test_problem_of_keys_is_remembered_until_the_next_attempt(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It ends the run, as no attempt could help."""
    foreign = Keys(str(ReleaseKeys().write_master(tmp_path / "keys")), WORKER_NAME)
    monkeypatch.setattr(served, "access", served.access._replace(keys=foreign))
    client.ask("true")
    assert client.code() == 255
    said = f"hvd-worker-0: {KEYS_DIFFER}"
    assert said in read(client.stderr).decode()
    assert served.gateway.key_problem.startswith(said)
    served.gateway.forget()
    assert served.gateway.key_problem == ""


@pytest.mark.parametrize(
    ("host", "code", "expected"),
    [(HOST, 1, [WorkerReached(7)]), ("elsewhere", 255, [])],
    ids=["reached", "not reached"],
)
def test_attempt_that_has_reached_a_worker_is_reported_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, host: str, code: int, expected: list[Event]
) -> None:
    monkeypatch.setattr(served, "access", served.access._replace(variables={"HVD_ATTEMPT": "7"}))
    served.events.clear()
    served.gateway.forget()

    def connect() -> int:
        client = Client()
        client.ask("exit 1", host)
        code = client.code()
        client.close()
        return code

    assert [connect(), connect()] == [code] * 2
    assert served.events == expected


def test_program_that_the_client_leaves_continues_for_its_time(
    served: Served, client: Client, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    left = tmp_path / "left"
    wait = f"until [ -e {gone} ]; do sleep 0.01; done"
    client.ask(f"echo up; read line; {wait}; echo $line >{left}; sleep 60", stay=60.0)
    assert os.read(client.stdout, 3) == b"up\n"
    client.connection.sendall(STAY)
    client.connection.close()
    # The gateway then has no stream of the client.
    assert read(client.stdout) == b""
    gone.touch()
    wait_until(left.exists, 20, "it continues")


def test_output_before_a_broken_agent_connection_reaches_the_client(
    served: Served, client: Client, arrived: Arrived
) -> None:
    """The last lines of a worker that is lost say why."""
    client.ask("head -c 200000 /dev/zero; echo last words; kill -KILL $PPID; sleep 60")
    # The pipe to the client takes a part of it.
    wait_until(lambda: arrived.has_ended, 20, "the gateway knows the end")
    output = read(client.stdout)
    assert len(output) == 200_011
    assert output.endswith(b"last words\n")
    assert client.code() == 137


def test_last_output_of_a_connection_that_breaks_reaches_the_client(
    tmp_path: Path,
    served: Served,
    client: Client,
    arrived: Arrived,
    release: ReleaseKeys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with start_limited(tmp_path / "agent", release) as agent:
        addresses = served.access.agents._replace(port=agent.port)
        monkeypatch.setattr(served, "access", served.access._replace(agents=addresses))
        client.ask("head -c 200000 /dev/zero; exec sleep 60")
        wait_until(lambda: arrived.output == 200_000, 20, "the gateway has the output")
        agent.kill()
        assert len(read(client.stdout)) == 200_000
        assert client.code() == 255
        assert b"error: hvd-worker-0: port " in read(client.stderr)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (frames.INPUT, lambda client: os.write(client.stdin, b"in\n")),
        (frames.STAY, lambda client: client.connection.sendall(STAY)),
    ],
    ids=["input", "stay"],
)
def test_output_that_came_before_nothing_could_be_sent_reaches_the_client(
    served: Served,
    client: Client,
    arrived: Arrived,
    monkeypatch: pytest.MonkeyPatch,
    kind: bytes,
    cause: Callable[[Client], object],
) -> None:
    failed = []

    def fail(connection: AgentConnection, kind: bytes, content: bytes = b"") -> None:
        failed.append(kind)
        raise AgentConnectionError("the connection has ended")

    client.ask("head -c 200000 /dev/zero; exec sleep 60")
    # The pipe to the client takes a part of it.
    wait_until(lambda: arrived.output == 200_000, 20, "the gateway has the output")
    monkeypatch.setattr(AgentConnection, "send", fail)
    cause(client)
    wait_until(lambda: failed, 20, "the gateway has tried to send it")
    assert failed == [kind]
    assert len(read(client.stdout)) == 200_000
    assert client.code() == 255


@pytest.mark.skipif(
    -1 < resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 3000,
    reason="this machine allows too few files",
)
def test_streams_have_any_numbers(served: Served, client: Client, arrived: Arrived) -> None:
    """A launch on many workers has thousands of descriptors, more than select() takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    with ExitStack() as stack:
        [stack.enter_context(Path(os.devnull).open()) for _ in range(1100)]
        os.set_blocking(client.streams[1], False)
        client.ask("head -c 500000 /dev/zero")
        full = fcntl.fcntl(client.stdout, fcntl.F_GETPIPE_SZ)
        wait_until(lambda: arrived.output > full, 20, "more has come than the pipe takes")
        assert len(read(client.stdout)) == 500_000
        assert client.code() == 0
