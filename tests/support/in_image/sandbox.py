"""Run commands in an image as a pod under Pod Security `restricted` would: any user, no
capabilities, no new privileges, a read-only root, /tmp in memory, no network but the loopback.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from images.builder.build import BuiltImage

Result = subprocess.CompletedProcess[str]
# The image's own user, and a user without an entry in the image.
OWN_UID = 1000
UNKNOWN_UID = 1000680000
_TIME_LIMIT = 300


def launch_ranks(number: int) -> tuple[str, ...]:
    """Return a launcher of ranks that share few cores: a waiting rank yields its core."""
    options = ("--bind-to", "none", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1")
    return ("mpirun", "-np", str(number), *options)


TWO_RANKS = launch_ranks(2)
TWO_RANKS_OVER_GLOO = (
    "horovodrun",
    "--gloo",
    "-np",
    "2",
    "-H",
    "localhost:2",
    "--network-interface",
    "lo",
)


@dataclass(frozen=True)
class Sandbox(ABC):
    """An image in which commands run, each in a separate container.

    uid: the user of a command. environment: its variables, beside HOME and the image's own.
    """

    image: BuiltImage
    folder: Path  # on this machine; mounted at /output, writable for all users

    @abstractmethod
    def _command(
        self, command: Sequence[str], uid: int, environment: Mapping[str, str]
    ) -> list[str]:
        """Return the command of this machine that runs `command` in the image."""

    def with_gpus(self) -> Sandbox:
        """Return the same sandbox with the GPUs of this machine.

        Raises NotImplementedError for an engine that cannot give a GPU to a container.
        """
        raise NotImplementedError(f"{self.image.engine.program} cannot give a GPU to a container")

    def run(self, *command: str, uid: int = UNKNOWN_UID, **environment: str) -> Result:
        """Run a command to its end, whatever its exit status.

        Raises subprocess.TimeoutExpired after _TIME_LIMIT seconds.
        """
        return subprocess.run(
            self._command(command, uid, {"HOME": "/tmp", **environment}),
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command with pipes for input and output; the caller ends it."""
        return subprocess.Popen(
            self._command(command, UNKNOWN_UID, {"HOME": "/tmp", **environment}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def python(self, code: str, uid: int = UNKNOWN_UID) -> str:
        """Run a Python program, which must succeed, and return its output."""
        return self.succeed("python3", "-c", code, uid=uid)

    def succeed(self, *command: str, uid: int = UNKNOWN_UID, **environment: str) -> str:
        """Run a command, which must exit with status 0, and return its standard output.

        Raises AssertionError, with its whole output, for another status.
        """
        done = self.run(*command, uid=uid, **environment)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{output_of(done)}"
        return done.stdout


def output_of(done: Result) -> str:
    """Return the output of a command, standard output first, for the message of a failure."""
    return f"{done.stdout}\n{done.stderr}"


@dataclass(frozen=True)
class EngineSandbox(Sandbox):
    """Runs containers with Docker or Podman."""

    gpus: bool = False

    def with_gpus(self) -> Sandbox:
        return replace(self, gpus=True)

    def _command(
        self, command: Sequence[str], uid: int, environment: Mapping[str, str]
    ) -> list[str]:
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        podman = self.image.engine.program == "podman"
        gpus = ["--device=nvidia.com/gpu=all" if podman else "--gpus=all"] if self.gpus else []
        return [
            self.image.engine.program,
            "run",
            "--rm",
            "--interactive",
            "--read-only",
            "--network=none",
            *gpus,
            # Gloo crashes when the host's own name does not resolve; in a pod it does.
            "--hostname=sandbox",
            "--add-host=sandbox:127.0.0.1",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--tmpfs=/tmp",
            f"--user={uid}:0",
            f"--volume={self.folder}:/output",
            *variables,
            self.image.reference,
            *command,
        ]


@dataclass(frozen=True)
class RuncSandbox(Sandbox):
    """Runs Buildah's images with runc: Buildah itself cannot apply all restrictions."""

    root: Path
    config: Mapping[str, Any]  # the image's: Env, WorkingDir
    bundles: Path = field(repr=False)

    def _command(
        self, command: Sequence[str], uid: int, environment: Mapping[str, str]
    ) -> list[str]:
        bundle = Path(tempfile.mkdtemp(prefix="hvd-test-", dir=self.bundles))
        subprocess.run(["runc", "spec", "--bundle", bundle], check=True)
        file = bundle / "config.json"
        spec = json.loads(file.read_text())
        process = spec["process"]
        process["terminal"] = False
        process["user"] = {"uid": uid, "gid": 0}
        process["args"] = list(command)
        process["env"] = [
            *self.config["Env"],
            *(f"{name}={value}" for name, value in environment.items()),
        ]
        process["cwd"] = self.config.get("WorkingDir") or "/"
        process["capabilities"] = {kind: [] for kind in process["capabilities"]}
        spec["root"] = {"path": str(self.root), "readonly": True}
        # Gloo crashes when the host's own name does not resolve; in a pod it does.
        hosts = bundle / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {spec['hostname']}\n")
        spec["mounts"] += [
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
            _bind("/output", self.folder),
            _bind("/etc/hosts", hosts),
        ]
        file.write_text(json.dumps(spec))
        return ["runc", "run", "--bundle", str(bundle), bundle.name]

    def end_containers(self) -> None:
        """End the containers whose runc was killed: they continue without it."""
        listed = subprocess.run(
            ["runc", "list", "--quiet"], check=True, capture_output=True, text=True
        ).stdout
        for name in {bundle.name for bundle in self.bundles.iterdir()} & {*listed.split()}:
            subprocess.run(["runc", "delete", "--force", name], check=True)


def _bind(destination: str, source: Path) -> dict[str, Any]:
    options = ["rbind", "rw"]
    return {"destination": destination, "type": "bind", "source": str(source), "options": options}


def make_open_folder(folder: Path) -> Path:
    """Make a folder that any user may write to, whatever the umask."""
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@contextmanager
def sandbox(image: BuiltImage, folder: Path) -> Iterator[Sandbox]:
    """Run commands in the image until the end of the block, also when SIGTERM ends it."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    make_open_folder(folder)
    if image.engine.program != "buildah":
        yield EngineSandbox(image, folder)
        return
    container = _buildah("from", image.reference)
    bundles = Path(tempfile.mkdtemp(prefix="hvd-bundles-"))
    try:
        root = Path(_buildah("mount", container))
        details = json.loads(_buildah("inspect", "--type=container", container))
        opened = RuncSandbox(image, folder, root, details["OCIv1"]["config"], bundles)
        try:
            yield opened
        finally:
            opened.end_containers()
    finally:
        _buildah("rm", container)
        shutil.rmtree(bundles)


def _buildah(*arguments: str) -> str:
    done = subprocess.run(["buildah", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()
