"""Pods that log in to each other on this machine: the chart's files, a real sshd and a real ssh."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from devtools.common.apt import install_packages
from tests.ports import find_port
from tests.unit.hvd_pods.copies import copy_files, replace_in
from tests.waiting import wait_until

# Of a test for which it matters whether the worker runs as root.
also_as_root = pytest.mark.parametrize(
    "ssh_pods", [0, 4321], indirect=True, ids=["root", "unprivileged"]
)
WORKER = "hvd-worker-0"
REVISION = "r1"
KEYS = ("user-key", "host-key")
# The worker's environment, with values that quoting could damage.
CONTAINER = {
    "PATH": f"/opt/tools:{os.environ['PATH']}",
    "HOME": "/tmp",
    "SPACES": "  a  b ",
    "LINES": "first\nsecond\n",
    "QUOTES": """ 'single' "double" `back` $HOME \\ """,
    "EMPTY": "",
    "HVD_GRACE": "77",
    "HVD_HOSTS": "40",
    "NOT_UTF_8": os.fsdecode(b"\xff\xfe"),
}
# Pods run an image's Python, which every user may run; the tests' own may be in /root.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
# The namespace has the pod's own /etc/passwd, and a /run/sshd that all may write to, as in a pod.
ENTER_NAMESPACE = (
    'mount --bind "$0" /etc/passwd && mount -t tmpfs tmpfs /run && mkdir -m 777 /run/sshd'
    ' && exec "$@"'
)
# As whom an sshd of root runs what has not logged in: Debian's, that of ssh.image.
OF_SSHD = {100: "sshd", 65534: "nobody"}
# OpenSSH 9.8 and newer refuse an address for some time after it failed to log in. So each login
# comes from another loopback address.
SOURCES = itertools.count(1)


def require_sshd() -> None:
    """Install OpenSSH's server when it is missing. Raises DevtoolsError when that fails."""
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        return
    install_packages(["openssh-server"])
    if shutil.which("systemctl"):
        # Only the tests need it; the machine's own sshd must not start at the next boot.
        subprocess.run(["systemctl", "disable", "ssh.service"], check=True, capture_output=True)


def make_key(passphrase: str = "") -> bytes:
    """Return a private key of the kind that Helm's genPrivateKey "ecdsa" makes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "key"
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-m", "PEM", "-N", passphrase]
        subprocess.run([*command, "-f", str(file)], check=True)
        return file.read_bytes()


@dataclass(frozen=True)
class User:
    """The user that pods run as, and the command that makes a process that user's.

    openssh: the programs of ssh.image, of pods whose image has none.
    """

    name: str
    uid: int
    prefix: tuple[str, ...] = ()
    home: Path | None = None
    openssh: Path | None = None


def make_user(uid: int, folder: Path) -> User:
    """Return a user with the rights that the chart gives a container of this UID.

    Only root can make one; without root, return the user that runs the tests.
    """
    if os.geteuid() != 0:
        return User(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid())
    folder.chmod(0o755)
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    passwd = folder / "passwd"
    name = "root" if uid == 0 else "horovod"
    entries = [f"{name}:x:{uid}:{uid}::{home}:/bin/sh", f"other:x:4322:4322::{home}:/bin/sh"]
    entries += ["root:x:0:0::/root:/bin/sh"] if uid else []
    entries += [f"{of}:x:{uid}:65534::/run/sshd:/bin/false" for uid, of in OF_SSHD.items()]
    passwd.write_text("\n".join([*entries, ""]))
    capabilities = "-all" if uid else "-all,+setgid,+setuid,+sys_chroot"
    rights = ["--no-new-privs", f"--bounding-set={capabilities}", "--inh-caps=-all"]
    rights += [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    enter = ["unshare", "--mount", "sh", "-c", ENTER_NAMESPACE, str(passwd)]
    return User(name, uid, (*enter, "setpriv", *rights), home)


class Pod:
    """A container: a copy of the pod files, whose paths are below a folder of the pod's own."""

    def __init__(self, root: Path, user: User, keys: Mapping[str, bytes]) -> None:
        self.root = root
        self.user = user
        self.files = copy_files(root, PYTHON)
        self.generated = root / "generated"
        if user.openssh:
            (root / "openssh").symlink_to(user.openssh)
            program = self.files / "hvd_pods/common/ssh.py"
            replace_in(program, 'f"{search_path}:{OPENSSH}"', "str(OPENSSH)", 1)
        for folder in (root / "ssh", root / "code", root / "code-source", self.generated):
            folder.mkdir()
        replace_in(self.files / "hvd_pods/common/reporting.py", '"/dev/', f'"{self.generated}/', 1)
        for name, key in keys.items():
            (root / "ssh" / name).write_bytes(key)
            (root / "ssh" / name).chmod(0o440)
        for path in (root, *root.rglob("*")):
            os.chown(path, user.uid, -1)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[bytes]:
        # A path, since the program's environment is not where to look for unshare.
        return subprocess.Popen([*self.user.prefix, *command], **options)

    def run(
        self, *command: str, input: bytes = b"", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program as the pod's user, with these variables besides PATH, to its end."""
        environment = {"PATH": os.environ["PATH"], **variables}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with self.start(*command, env=environment, **pipes) as process:
            try:
                output, errors = process.communicate(input, timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def ssh(
        self, *arguments: str, input: bytes = b"", **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        return self.run(*self.ssh_command(*arguments), input=input, **variables)

    def plain_ssh(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run OpenSSH's `ssh`, with the pod's keys and any option, as a program of a rank may."""
        config = str(self.generated / "ssh_config")
        source = f"BindAddress=127.0.2.{next(SOURCES)}"
        return self.run("ssh", "-F", config, "-o", source, *arguments)

    def ssh_command(self, *arguments: str) -> list[str]:
        """Return the command line of the `ssh` that launchers find."""
        source = f"127.0.2.{next(SOURCES)}"
        return [str(self.generated / "bin" / "ssh"), "-o", f"BindAddress={source}", *arguments]


class Worker(Pod):
    """A worker, whose main program, `process`, runs sshd."""

    process: subprocess.Popen[bytes]

    @contextmanager
    def serve(self, environment: Mapping[str, str]) -> Iterator[int]:
        """Run the worker's main program until the end of the block; yields sshd's port."""
        port = find_port()
        own = {"HVD_SSH_PORT": str(port), "HVD_REVISION": REVISION}
        own["HVD_METRICS_DIR"] = str(self.root / "metrics")
        # Of a rank before the container was restarted.
        (self.root / "metrics").mkdir()
        (self.root / "metrics" / "9").touch()
        for path in (self.root / "metrics", self.root / "metrics" / "9"):
            os.chown(path, self.user.uid, -1)
        with (self.root / "log").open("wb") as log:
            process = self.start(
                PYTHON,
                "-I",
                "-S",
                str(self.files / "hvd_pods/worker/main.py"),
                env={**environment, **own},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.process = process
        try:
            # sshd does not announce that it listens.
            wait_until(lambda: process.poll() is not None or read_banner(port), 60, "sshd listens")
            assert process.poll() is None, self.log
            yield port
        finally:
            # A rank that does not end keeps the worker.
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            kill_all(own)
            process.wait(20)

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()


class Master(Pod):
    """A master that knows one worker."""

    def prepare(self, port: int) -> None:
        """Write what the master writes before it launches ranks; the worker is at `port`."""
        self.call(
            "from hvd_pods.common import ssh; ssh.prepare_client(); "
            f"ssh.write_client_config({port}, {{HOST: '127.0.0.1'}})"
        )

    def call(self, program: str) -> str:
        """Return the output of a Python program of the master; its worker is HOST there."""
        begin = f"import sys; sys.path.insert(0, {str(self.files)!r})\n"
        begin += "from hvd_pods.common.run import Host\n"
        begin += f"HOST = Host({WORKER!r}, '{WORKER}.hvd', 1, 'hvd-worker', {REVISION!r})\n"
        done = self.run(PYTHON, "-I", "-c", begin + program)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


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
            return connection.makefile("rb").readline().decode().rstrip("\r\n")
    except OSError:
        return ""


@dataclass(frozen=True)
class SshPods:
    """A worker whose sshd listens at `port`, and a master of the same release."""

    folder: Path
    worker: Worker
    master: Master
    port: int

    def add_master(self, name: str, **other_keys: bytes) -> Master:
        """Return another master, whose Secret differs in the keys given (user_key, host_key)."""
        keys = {key: (self.worker.root / "ssh" / key).read_bytes() for key in KEYS}
        keys |= {key.replace("_", "-"): content for key, content in other_keys.items()}
        master = Master(self.folder / name, self.worker.user, keys)
        master.prepare(self.port)
        return master


@contextmanager
def start_ssh_pods(uid: int, openssh: Path | None = None, **variables: str) -> Iterator[SshPods]:
    """Run a worker as a user, with these variables, and prepare a master.

    openssh: the programs of ssh.image; without, OpenSSH is this machine's.
    """
    with tempfile.TemporaryDirectory(prefix="ssh-pods-") as name:
        folder = Path(name)
        user = replace(make_user(uid, folder), openssh=openssh)
        keys = {key: make_key() for key in KEYS}
        worker = Worker(folder / "worker", user, keys)
        master = Master(folder / "master", user, keys)
        with worker.serve({**CONTAINER, **variables}) as port:
            master.prepare(port)
            yield SshPods(folder, worker, master, port)
