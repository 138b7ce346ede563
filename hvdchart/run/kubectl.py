"""Calls kubectl for what it does well: commands in pods and ports on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hvdchart.errors import ClusterError

# The line in which `port-forward` prints the port that it listens on.
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")
# A command, or the shell that the image has, in the directory of the user's code if there is any,
# with its packages (hvd_pods/common/packages.py).
_PACKAGES = "/horovod/code/.packages/current"
_ENTER = (
    "cd /horovod/code/*/ 2>/dev/null; "
    f"[ -e {_PACKAGES} ] && export PYTHONPATH={_PACKAGES}/site${{PYTHONPATH:+:$PYTHONPATH}} "
    f'PATH=$PATH:{_PACKAGES}/bin; exec "$@"'
)
IN_CODE = ("sh", "-c", _ENTER, "sh")
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


@dataclass(frozen=True)
class Kubectl:
    """The program `kubectl` for one namespace. Raises ClusterError if it is not on PATH."""

    namespace: str
    context: str | None = None

    def command(self, *arguments: str) -> list[str]:
        """The complete command line."""
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError(
                "no program kubectl is on PATH: install it, as kubernetes.io/docs/tasks/tools says"
            )
        context = ["--context", self.context] if self.context else []
        return [program, *context, "--namespace", self.namespace, *arguments]

    def run_in(self, pod: str, container: str, command: Sequence[str]) -> int:
        """Run a command, or a shell, in a container with this terminal; returns its exit code."""
        options = "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
        line = (*IN_CODE, *(command or SHELL))
        arguments = self.command("exec", options, pod, "-c", container, "--", *line)
        return subprocess.run(arguments, check=False).returncode

    def read(self, pod: str, container: str, command: Sequence[str]) -> bytes:
        """What a command in a container prints. Raises ClusterError when it fails."""
        arguments = self.command("exec", pod, "-c", container, "--", *command)
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            reason = " ".join(done.stderr.decode(errors="replace").split())
            raise ClusterError(f"cannot run {command[0]} in pod {pod}: {reason}")
        return done.stdout

    def forward(self, service: str, port: int, local_port: int) -> Forwarding:
        """Make a Service's port one of this machine; 0 takes any that is free."""
        ports = f"{local_port or ''}:{port}"
        process = subprocess.Popen(
            self.command("port-forward", f"service/{service}", ports),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101
        line = process.stdout.readline()
        match = _FORWARDING.match(line)
        if not match:
            process.kill()
            reason = " ".join(f"{line} {process.communicate()[1]}".split())
            busy = "; choose another port with --port" if "listen" in reason else ""
            raise ClusterError(f"cannot forward a port to service {service}: {reason}{busy}")
        return Forwarding(int(match[1]), process)


@dataclass
class Forwarding:
    """A port of this machine that kubectl forwards until its process ends."""

    port: int
    process: subprocess.Popen[str]

    def wait(self) -> str:
        """Wait for the end; returns why it ended."""
        try:
            return " ".join(self.process.communicate()[1].split())
        finally:
            self.process.kill()
