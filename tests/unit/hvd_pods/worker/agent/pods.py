"""A worker's pod on this machine: the chart's programs, with paths and a user of the pod's own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import copy_files, replace_in
from hvd_pods.protocol.keys import Keys
from tests.support.ports import find_port
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.support.programs import Program, make_request

REVISION = "r1"
# The worker's environment, with values that quoting could damage.
CONTAINER = {
    "PATH": f"/opt/tools:{os.environ['PATH']}",
    "HOME": "/tmp",
    "SPACES": "  a  b ",
    "LINES": "first\nsecond\n",
    "QUOTES": """ 'single' "double" `back` $HOME \\ """,
    "EMPTY": "",
    "HVD_GRACE_SECONDS": "77",
    "HVD_WORKERS": "40",
    "NOT_UTF_8": os.fsdecode(b"\xff\xfe"),
}
# Pods run an image's Python, which every user may run; the tests' own may be in /root.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
UID = 4321


def user_prefix() -> tuple[int, list[str]]:
    """Return a user as the chart gives a container one, and the command that becomes that user.

    Only root can make one; without root, it is the user that runs the tests.
    """
    if os.geteuid() != 0:
        return os.geteuid(), []
    rights = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    return UID, ["setpriv", *rights, f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]


class Pod:
    """A container: a copy of the pods' programs, whose paths are below a folder of the pod's."""

    def __init__(self, root: Path, keys: ReleaseKeys | None) -> None:
        self.root = root
        self.uid, self.prefix = user_prefix()
        self.files = copy_files(root, PYTHON)
        self.generated = root / "generated"
        for folder in (root / "code", root / "code-source", root / "metrics", self.generated):
            folder.mkdir()
        if keys:
            keys.write_worker(root / "keys")
        replace_in(self.files / "hvd_pods/pod/reporting.py", '"/dev/', f'"{self.generated}/', 1)
        for path in (root, *root.rglob("*")):
            os.chown(path, self.uid, -1)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.prefix, *command], **options)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Run a program as the pod's user, with these variables besides PATH, to its end."""
        environment = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run(
            [*self.prefix, *command], env=environment, capture_output=True, check=False, timeout=60
        )


@dataclass
class Served:
    """A worker's agent at a port of this machine, and the keys with which its master asks it."""

    port: int
    keys: Keys

    def banner(self) -> str:
        return read_banner(self.port)

    def ask(self, argv: Sequence[str], fence: int = 0, **fields: Any) -> Program:
        """Start a program as the master does."""
        return Program("127.0.0.1", self.port, self.keys, make_request(argv, fence, **fields))

    def shell(self, line: str, fence: int = 0, **fields: Any) -> Program:
        """Start a shell, as a launcher does."""
        return self.ask(["/bin/sh", "-c", line], fence, **fields)

    def run(self, line: str, fence: int = 0, **fields: Any) -> Program:
        """Run a shell to its end."""
        with self.shell(line, fence, **fields) as program:
            program.give(b"")
            program.wait()
        return program


@dataclass
class AgentPod(Served):
    """A worker that serves."""

    pod: Pod
    process: subprocess.Popen[bytes]
    release: ReleaseKeys
    variables: Mapping[str, str]

    @property
    def log(self) -> str:
        return (self.pod.root / "log").read_text()

    @property
    def agent(self) -> int:
        """The number of the agent's process."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (found,) = [
            int(child)
            for child in children
            if b"worker/agent.py" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
        return found

    def own(self, program: str, *arguments: str, fence: int = 0, **fields: Any) -> Program:
        """Start a program of the chart, such as worker/graceful_termination.py."""
        path = f"{self.pod.files}/hvd_pods/{program}"
        return self.ask(["python3", "-I", "-S", path, *arguments], fence, **fields)


@contextmanager
def start_agent(
    prepare: Callable[[Pod], None] | None = None, **variables: str
) -> Iterator[AgentPod]:
    """Run a worker with these variables until the end of the block; `prepare` changes its pod."""
    with tempfile.TemporaryDirectory(prefix="agent-pods-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        release = ReleaseKeys()
        pod = Pod(folder / "worker", release)
        if prepare:
            prepare(pod)
        port = find_port()
        own = {
            "HVD_AGENT_PORT": str(port),
            "HVD_REVISION": REVISION,
            "HVD_MASTER_NAME": release.master_name,
            "HVD_METRICS_DIR": str(pod.root / "metrics"),
        }
        environment = {**CONTAINER, **own, **variables}
        with (pod.root / "log").open("wb") as log:
            process = pod.start(
                PYTHON,
                "-I",
                "-S",
                str(pod.files / "hvd_pods/worker/main.py"),
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        keys = release.of_master(folder / "master-keys")
        started = AgentPod(port, keys, pod, process, release, environment)
        try:
            # The line in the log comes when the agent listens.
            wait_until(lambda: process.poll() is not None or "ready" in started.log, 60, "listens")
            assert process.poll() is None, started.log
            yield started
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            kill_all(own)
            process.wait(20)


def kill_all(variables: Mapping[str, str]) -> None:
    """Kill the processes that have these variables, as the end of a container does."""
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    for file in Path("/proc").glob("[0-9]*/environ"):
        # Processes end meanwhile, and others' cannot be read.
        with suppress(OSError):
            if wanted <= set(file.read_bytes().split(b"\0")):
                os.kill(int(file.parent.name), signal.SIGKILL)


def read_banner(port: int) -> str:
    """Return the first line of the server at a port, empty when nothing listens there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            return connection.makefile("rb").readline().decode().rstrip("\n")
    except OSError:
        return ""


def all_commands() -> bytes:
    """Return the command lines of all processes, with spaces between their words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        # Processes end meanwhile.
        with suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" "))
    return b"\n".join(found)
