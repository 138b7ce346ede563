"""The command `ssh` of a master's pod: what it takes, what it refuses, and a connection by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Any, NamedTuple

import pytest

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import copy_files
from hvd_pods.master import gateway, gateway_client, launch, mpi
from hvd_pods.master import ssh as command
from hvd_pods.master.agent_connection import AgentAddresses
from hvd_pods.master.remote import AgentAccess
from hvd_pods.protocol.keys import Keys
from hvd_pods.shared.errors import RunError
from tests.support.release_keys import WORKER_NAME, ReleaseKeys
from tests.unit.hvd_pods.worker.agent.limited import LimitedAgent, start_limited
from tests.unit.hvd_pods.worker.agent.pods import all_commands

HOST = "hvd-worker-0"
FULL_NAME = f"{HOST}.hvd.team.svc"


class Pod:
    """A master's pod with a gateway, of which the host hvd-worker-0 is an agent."""

    def __init__(self, agent: LimitedAgent, folder: Path, release: ReleaseKeys) -> None:
        self.agent = agent
        self.program = str(folder / "generated/bin/ssh")
        keys = Keys(str(release.write_master(folder / "keys")), WORKER_NAME)
        address = "127.0.0.1"
        known = {HOST: address, FULL_NAME: address}
        self.access = AgentAccess(keys, AgentAddresses(agent.port, known), {})
        self.problem: RunError | None = None
        self.gateway = gateway.Gateway(self._find_access, lambda event: None)

    def _find_access(self) -> AgentAccess:
        if self.problem:
            raise self.problem
        return self.access

    @contextmanager
    def start(self, *words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        variables = options.pop("variables", {})
        environment = {"PATH": os.environ["PATH"], **variables}
        process = subprocess.Popen([self.program, *words], env=environment, **options)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(
        self, *words: str, content: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, bytes]:
        """Run `ssh` to its end: its exit code, output and errors."""
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
        with self.start(*words, variables=variables or {}, **pipes) as process:
            output, errors = process.communicate(content, timeout=60)
        return process.returncode, output, errors


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory, release: ReleaseKeys) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("master")
    (folder / "generated").mkdir()
    files = copy_files(folder, sys.executable)
    with (
        pytest.MonkeyPatch.context() as patch,
        start_limited(folder / "agent", release, end_timeout_seconds=0.1) as agent,
    ):
        patch.setattr(gateway_client, "GATEWAY_SOCKET", str(folder / "generated/gateway.sock"))
        patch.setattr(mpi, "SSH", folder / "generated/bin/ssh")
        patch.setattr(launch, "BIN", str(files))
        launch.write_ssh(sys.executable)
        started = Pod(agent, folder, release)
        started.gateway.start()
        yield started


class Pipe(NamedTuple):
    """Both ends of a pipe, without a buffer."""

    reader: IO[bytes]
    writer: IO[bytes]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as readable, os.fdopen(writer, "wb", 0) as writable:
        yield Pipe(readable, writable)


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        pytest.param("w true", ("w", "true", False), id="plain"),
        pytest.param("-x w orted -mca a b", ("w", "orted -mca a b", False), id="open mpi"),
        pytest.param(
            "-x -q w hydra_pmi_proxy --x", ("w", "hydra_pmi_proxy --x", False), id="hydra"
        ),
        pytest.param("-2 -a -x -lroot w uname -a", ("w", "uname -a", False), id="pdsh"),
        pytest.param(
            "-o PasswordAuthentication=no -o StrictHostKeyChecking=no w -p 2222 -i /key true",
            ("w", "true", False),
            id="horovodrun",
        ),
        pytest.param("w -o ConnectTimeout=10 -- -x y", ("w", "-x y", False), id="after the host"),
        pytest.param("-xTn -oBatchMode=yes w true", ("w", "true", True), id="no input"),
        pytest.param("w -n true", ("w", "true", True), id="no input, after the host"),
        pytest.param(
            "-T -e none -c aes128-gcm@openssh.com w rsync", ("w", "rsync", False), id="rsync"
        ),
        pytest.param("-otcpkeepalive=yes user@w a  b", ("w", "a b", False), id="user"),
        pytest.param("-- w true", ("w", "true", False), id="end of the options"),
    ],
)
def test_options_that_launchers_pass_are_taken(
    arguments: str, parsed: tuple[str, str, bool]
) -> None:
    assert command.parse(arguments.split()) == parsed


def test_words_after_the_host_are_one_line_as_they_are() -> None:
    assert command.parse(["w", "echo 'a  b' ;", "exit 3"]) == ("w", "echo 'a  b' ; exit 3", False)
    assert command.parse(["-o", "Compression = no", "w", "x"]) == ("w", "x", False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no host"),
        (["-x"], "no host"),
        (["w"], "no command"),
        (["-x", "w", "-T"], "no command"),
        (["-o"], "-o "),
        (["-p"], "-p "),
        (["-o", "", "w", "true"], "-o  "),
        (["-oProxyCommand=touch x", "w", "true"], "-o ProxyCommand=touch x "),
        (["-o", " proxycommand touch x", "w", "true"], "-o  proxycommand touch x "),
        (["-o", '"ProxyCommand" touch x', "w", "true"], '-o "ProxyCommand" touch x '),
        (["w", "-o", "ProxyCommand=touch x", "true"], "-o ProxyCommand=touch x "),
        (["-oLocalCommand=touch x", "w", "true"], "-o LocalCommand=touch x "),
        (["-oKnownHostsCommand=touch x", "w", "true"], "-o KnownHostsCommand=touch x "),
        (["-xoProxyCommand=touch x", "w", "true"], "-xoProxyCommand=touch x "),
        (["-oHostName=elsewhere", "w", "true"], "-o HostName=elsewhere "),
        *(
            ([f"-{letter}", "value", "w", "true"], f"-{letter} ")
            for letter in "BDEFGIJLMNOPQRSVWfgmswyz"
        ),
        (["-tf", "w", "true"], "-tf "),
        (["--help"], "--help "),
        (["-", "w", "true"], "- "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_anything_else_is_refused_by_name(arguments: list[str], said: str) -> None:
    with pytest.raises(command.UsageError) as problem:
        command.parse(arguments)
    assert str(problem.value).startswith(said)


slow = pytest.mark.slow


@slow
def test_input_output_and_exit_code_are_those_of_the_program(pod: Pod) -> None:
    line = "cat; echo wrong >&2; exit 7"
    assert pod.run("-x", HOST, line, content=b"in\n") == (7, b"in\n", b"wrong\n")
    assert pod.run(FULL_NAME, "kill -TERM $$")[0] == 128 + signal.SIGTERM
    assert pod.run("user@127.0.0.1", "echo", "$((1", "+", "1))") == (0, b"2\n", b"")


@slow
def test_program_has_the_variables_of_the_attempt_and_no_others(pod: Pod) -> None:
    given = {
        "HVD_FENCE": "12",
        "HVD_ATTEMPT": "3",
        "HVD_RUN_ID": "run-1",
        "HVD_NOTICES": "a,1,s",
        "HVD_RENDEZVOUS": "m",
    }
    code, output, _ = pod.run(
        HOST, "env", variables={**given, "SECRET": "secret", "LD_PRELOAD": "x"}
    )
    assert code == 0
    found = dict(line.split("=", 1) for line in output.decode().splitlines())
    assert {name: found[name] for name in given} == given
    assert "SECRET" not in found
    assert "LD_PRELOAD" not in found


@slow
def test_large_input_and_output_pass(pod: Pod) -> None:
    content = os.urandom(3_000_000)
    assert pod.run(HOST, "cat", content=content) == (0, content, b"")


@slow
def test_program_gets_no_input_with_n(pod: Pod) -> None:
    with pod.start("-n", HOST, "cat; echo end", stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout
        assert process.stdout.read() == b"end\n", "it waits for input that stays open"


@slow
def test_input_that_is_closed_or_a_file_is_given(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"file\n")
    with (
        (tmp_path / "input").open("rb") as file,
        pod.start(HOST, "cat", stdin=file, stdout=PIPE) as process,
    ):
        assert process.communicate(timeout=60)[0] == b"file\n"
    with pod.start(HOST, "cat; echo end", stdin=DEVNULL, stdout=PIPE) as process:
        assert process.communicate(timeout=60)[0] == b"end\n"


@slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "3</dev/null"])
def test_streams_may_be_closed_and_others_open(pod: Pod, closed: str) -> None:
    words = ["sh", "-c", f"{pod.program} {HOST} 'cat; exit 5' {closed}"]
    assert subprocess.run(words, stdin=DEVNULL, check=False, timeout=60).returncode == 5


@slow
@pytest.mark.parametrize(
    "words",
    [
        ["-oProxyCommand={}", HOST, "true"],
        [HOST, "-o", "ProxyCommand={}", "true"],
        ["-F", "{}", HOST, "true"],
        ["`{}`", "true"],
        ["$({})", "true"],
        ["; {} ;", "true"],
        ["-l", "$({})", "nowhere", "true"],
    ],
    ids=" ".join,
)
@pytest.mark.promise("name of a host or an option starts no program")
def test_name_of_a_host_or_an_option_starts_no_program(
    pod: Pod, tmp_path: Path, words: list[str]
) -> None:
    """Training code names hosts: those of MPI's info key add-host."""
    started = tmp_path / "started"
    code, output, errors = pod.run(*(word.format(f"touch {started}") for word in words))
    assert (code, output) == (255, b"")
    assert errors.startswith(b"[hvd] error: ")
    assert not started.exists()


@slow
def test_pod_whose_master_takes_no_programs_is_reported(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = Path(gateway_client.GATEWAY_SOCKET)
    with ExitStack() as stack:
        hidden = socket.rename(socket.with_suffix(".hidden"))
        stack.callback(hidden.rename, socket)
        code, _, errors = pod.run(HOST, "true")
    assert code == 255
    assert b"the master does not take programs for workers: " in errors


@slow
def test_ssh_leaves_the_launchers_output_blocking(pod: Pod, pipe: Pipe) -> None:
    """Open MPI drops what is left at its end when a pipe takes no more: lines would be missing."""
    reader, writer = pipe
    with pod.start(HOST, "echo up; exec sleep 60", stdout=writer, stderr=writer):
        assert reader.read(3) == b"up\n"
        assert os.get_blocking(writer.fileno())


@slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_connection_ends_when_its_client_is_killed(pod: Pod, number: int) -> None:
    mark = f"sleep 66{os.getpid()}{int(number)}"
    with pod.start(HOST, f"echo up; {mark}", stdout=PIPE) as process:
        assert process.stdout
        assert process.stdout.read(3) == b"up\n"
        process.send_signal(number)
        process.wait(20)
        wait_until(lambda: mark.encode() not in all_commands(), 20, "the program is ended")


@slow
def test_connection_of_a_killed_client_ends_with_unread_output(pod: Pod, pipe: Pipe) -> None:
    mark = f"/bin/sh -c : 67{os.getpid()}; while :; do echo much; done"
    with pod.start(HOST, mark, stdout=pipe.writer) as process:
        wait_until(lambda: mark.encode() in all_commands(), 20, "it runs")
        # The pipe is full.
        wait_until(
            lambda: not gateway.can_write(pipe.writer.fileno()), 20, "nothing is written any more"
        )
        process.kill()
        process.wait(20)
        wait_until(lambda: mark.encode() not in all_commands(), 20, "the program is ended")


@slow
def test_connection_ends_when_nobody_can_read_its_output(pod: Pod, pipe: Pipe) -> None:
    """As with `| head -1`."""
    mark = f": 68{os.getpid()}; while :; do echo much; done"
    with pod.start(HOST, mark, stdout=pipe.writer) as process:
        pipe.writer.close()
        assert pipe.reader.read(5) == b"much\n"
        pipe.reader.close()
        assert process.wait(20) == 255
    wait_until(lambda: mark.encode() not in all_commands(), 20, "the program is ended")


@slow
def test_output_reaches_a_pipe_that_another_process_has_made_non_blocking(
    pod: Pod, pipe: Pipe
) -> None:
    os.set_blocking(pipe.writer.fileno(), False)
    with pod.start(HOST, "head -c 1000000 /dev/zero; echo end", stdout=pipe.writer) as process:
        wait_until(lambda: not gateway.can_write(pipe.writer.fileno()), 20, "the pipe is full")
        pipe.writer.close()
        assert len(pipe.reader.read()) == 1_000_004
        assert process.wait(20) == 0


@slow
def test_many_connections_run_side_by_side(pod: Pod) -> None:
    started = [
        subprocess.Popen(
            [pod.program, HOST, f"read line; echo {number} $line"],
            stdin=PIPE,
            stdout=PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        for number in range(8)
    ]
    output = [process.communicate(b"x\n", timeout=60)[0] for process in reversed(started)]
    assert output == [f"{number} x\n".encode() for number in reversed(range(8))]
    assert [process.returncode for process in started] == [0] * 8
