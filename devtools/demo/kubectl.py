"""kubectl on one namespace, for the demo and the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from devtools.toolchain.tools import tool


class CommandError(Exception):
    """A command failed; the message has what it said."""


@dataclass(frozen=True)
class Kubectl:
    """`environment` is what this cluster needs beside the process's own, such as KUBECONFIG."""

    namespace: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """The whole command line."""
        return [str(tool("kubectl")), "--namespace", self.namespace, *arguments]

    def variables(self) -> dict[str, str]:
        """The environment to run commands in."""
        return {**os.environ, **self.environment}

    def run(self, *arguments: str, input: str | None = None) -> str:
        """What it prints. Raises CommandError when it fails."""
        return run(self.command(*arguments), self.variables(), input)

    def watch(
        self, arguments: list[str], jsonpath: str, accept: Callable[[str], bool], seconds: int
    ) -> str:
        """Follow `get ... --watch` until a line of the template is accepted, and return that line.

        Raises CommandError when none is within `seconds`.
        """
        command = self.command(
            "get", *arguments, "--watch", f"--output=jsonpath={jsonpath}{{'\\n'}}"
        )
        with subprocess.Popen(
            ["timeout", str(seconds), *command],
            env=self.variables(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            for line in process.stdout or ():
                if accept(line.strip()):
                    process.terminate()
                    return line.strip()
        raise CommandError(f"`kubectl get {' '.join(arguments)}` did not come to it in {seconds} s")

    def job_end(self, job: str, seconds: int) -> str:
        """Await a Job's end: "Complete" or "Failed"."""
        ends = ("Complete", "Failed")
        conditions = self.watch(
            ["job", job],
            "{.status.conditions[*].type}",
            lambda line: any(end in line.split() for end in ends),
            seconds,
        )
        return next(end for end in ends if end in conditions.split())

    def master_started(self, job: str, seconds: int) -> str:
        """Await that a Job's pod runs or has run, and return the pod's name."""
        selector = f"--selector=batch.kubernetes.io/job-name={job}"
        line = self.watch(
            ["pods", selector],
            "{.metadata.name} {.status.phase}",
            lambda line: line.split()[1:] not in ([], ["Pending"]),
            seconds,
        )
        return line.split()[0]


def run(command: list[str], environment: Mapping[str, str], input: str | None = None) -> str:
    """What a command prints. Raises CommandError with what it said when it fails."""
    done = subprocess.run(
        command, env=environment, input=input, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CommandError(f"`{' '.join(command[1:5])} ...` failed:\n{done.stderr.strip()}")
    return done.stdout
