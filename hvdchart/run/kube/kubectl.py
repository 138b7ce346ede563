"""Call kubectl to run commands in pods, and to forward ports to this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from tempfile import TemporaryFile

from hvd_pods.shared.pipes import pipe_of
from hvd_pods.shared.untrusted import one_line
from hvdchart.errors import ClusterError
from hvdchart.interrupts import terminated_on_exception
from hvdchart.run.state.release import Object, component_of

# The maximum output of a command in a pod in bytes, and the number of kubectl processes at a time.
_MAX_OUTPUT_BYTES = 512 << 20
_MAX_PROCESSES = 16
# Runs a command, or the image's shell, in the folder of the user's code if there is one, with its
# packages (hvd_pods/pod/packages.py).
_CODE_PACKAGES = "/horovod/code/.packages/current"
_ENTER = (
    "cd /horovod/code/*/ 2>/dev/null; "
    f"[ -e {_CODE_PACKAGES} ] && "
    f"export PYTHONPATH={_CODE_PACKAGES}/site${{PYTHONPATH:+:$PYTHONPATH}} "
    f'PATH=$PATH:{_CODE_PACKAGES}/bin; exec "$@"'
)
IN_CODE = ("sh", "-c", _ENTER, "sh")
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


@dataclass(frozen=True)
class Kubectl:
    """The program `kubectl` for one namespace. Raises ClusterError if it is not on PATH."""

    namespace: str
    context: str | None = None

    def command(self, *arguments: str) -> list[str]:
        """Return kubectl's command line with these arguments, for the namespace and context."""
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError(
                "no program kubectl is on PATH: install it, as kubernetes.io/docs/tasks/tools says"
            )
        context = ["--context", self.context] if self.context else []
        return [program, *context, "--namespace", self.namespace, *arguments]

    def run_in(self, pod: str, container: str, command: Sequence[str]) -> int:
        """Run a command, or a shell, in a container with this terminal; return its exit code.

        It runs in the folder of the run's code, with the packages that were installed for it.
        """
        options = "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
        line = (*IN_CODE, *(command or SHELL))
        arguments = self.command("exec", options, pod, "-c", container, "--", *line)
        return subprocess.run(arguments, check=False).returncode

    def read(self, pod: str, container: str, command: Sequence[str]) -> bytes:
        """Return the standard output of a command in a container.

        Raises ClusterError with its standard error when it fails, and when it prints more than 512
        MiB.
        """
        arguments = self.command("exec", pod, "-c", container, "--", *command)
        with (
            TemporaryFile() as errors,
            subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            ) as process,
            terminated_on_exception(process),
        ):
            content = pipe_of(process.stdout).read(_MAX_OUTPUT_BYTES + 1)
            if len(content) > _MAX_OUTPUT_BYTES:
                raise ClusterError(
                    f"{command[0]} in pod {pod} prints more than {_MAX_OUTPUT_BYTES >> 20} MiB"
                )
            if process.wait():
                errors.seek(0)
                reason = one_line(errors.read(_MAX_OUTPUT_BYTES).decode(errors="replace"))
                raise ClusterError(f"cannot run {command[0]} in pod {pod}: {reason}")
        return content

    def read_each(
        self, pods: Sequence[Object], command: Sequence[str]
    ) -> list[tuple[str, str | ClusterError]]:
        """Return the output of a command in the main container of each pod, or why it failed there.

        Raises the first pod's ClusterError if it failed in all.
        """

        def ask(pod: Object) -> tuple[str, str | ClusterError]:
            name = str(pod["metadata"]["name"])
            try:
                answer = self.read(name, component_of(pod), command)
            except ClusterError as problem:
                # The pod ended after it was listed, or its image has no shell.
                return name, problem
            return name, answer.decode(errors="replace")

        with ThreadPoolExecutor(_MAX_PROCESSES) as pool:
            answers = list(pool.map(ask, pods))
        problems = [answer for _, answer in answers if isinstance(answer, ClusterError)]
        if problems and len(problems) == len(answers):
            raise problems[0]
        return answers

    def read_first(
        self, sources: Sequence[tuple[str, str]], command: Sequence[str]
    ) -> tuple[str, bytes]:
        """Return the first pod in which a command succeeds, and its output.

        `sources` are pods, each with its container; there is at least one. Raises ClusterError,
        with the reason of the first pod, when the command fails in all.
        """
        problems = []
        for pod, container in sources:
            try:
                return pod, self.read(pod, container, command)
            except ClusterError as error:
                problems.append(error)
        raise problems[0]

    def forward(
        self, service: str, port: int, local_port: int, report: Callable[[str], object]
    ) -> int:
        """Forward a port of this machine to a Service until kubectl ends; return its exit code.

        A `local_port` of 0 selects any free port; `report` gets the output of kubectl, such as the
        port.
        """
        ports = f"{local_port or ''}:{port}"
        arguments = self.command("port-forward", f"service/{service}", ports)
        with (
            subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process,
            terminated_on_exception(process),
        ):
            for line in pipe_of(process.stdout):
                # kubectl prints one of these lines for each request of a browser.
                if not line.startswith("Handling connection for "):
                    report(line.rstrip("\n"))
        return process.returncode
