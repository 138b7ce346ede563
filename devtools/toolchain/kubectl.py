"""kubectl on one namespace of any cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.toolchain.tools import tool


@dataclass(frozen=True)
class Kubectl:
    """kubectl on one namespace. `environment`: variables such as KUBECONFIG, added to those of this
    process.
    """

    namespace: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """Return the complete command line."""
        return [str(tool("kubectl")), "--namespace", self.namespace, *arguments]

    def variables(self) -> dict[str, str]:
        """Return the environment to run commands in."""
        return {**os.environ, **self.environment}

    def run(self, *arguments: str, input: str | None = None) -> str:
        """Run kubectl and return its output. Raises DevtoolsError when it fails."""
        return read_output(
            self.command(*arguments),
            remedy="see what the message names; the namespace's events may say more",
            input=input,
            environment=self.variables(),
        )

    def watch(
        self, arguments: list[str], jsonpath: str, accept: Callable[[str], bool], seconds: int
    ) -> str:
        """Watch objects, and return the first line that `accept` takes, without its end.

        arguments: a kind and selectors, for `kubectl get`. jsonpath: the fields of an object in a
        line.
        Raises DevtoolsError when there was none within `seconds`.
        """
        # `arguments` select a list: for a single object, kubectl misses changes before its watch
        # starts.
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
        target = " ".join(arguments)
        raise DevtoolsError(
            f"`kubectl get {target} --watch` did not show the awaited state within {seconds} s",
            f"see what keeps it: kubectl --namespace {self.namespace} describe {arguments[0]}",
        )

    def wait_for_job_end(self, job: str, seconds: int) -> str:
        """Wait until the Job has ended. Return "Complete" or "Failed".

        Raises DevtoolsError when it has not ended within `seconds`.
        """
        ends = ("Complete", "Failed")
        conditions = self.watch(
            ["jobs", f"--field-selector=metadata.name={job}"],
            "{.status.conditions[*].type}",
            lambda line: any(end in line.split() for end in ends),
            seconds,
        )
        return next(end for end in ends if end in conditions.split())

    def wait_for_job_start(self, job: str, seconds: int) -> str:
        """Wait until a pod of the Job runs or has run. Return the pod's name.

        Raises DevtoolsError when there is none within `seconds`.
        """
        selector = f"--selector=batch.kubernetes.io/job-name={job}"
        line = self.watch(
            ["pods", selector],
            "{.metadata.name} {.status.phase}",
            lambda line: line.split()[1:] not in ([], ["Pending"]),
            seconds,
        )
        return line.split()[0]
