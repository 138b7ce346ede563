"""A local cluster and its node, controlled through the command line as by a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools.common.repository import ROOT
from devtools.localkube import health
from devtools.localkube.instance import Instance
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.processes import kubectl_arguments
from devtools.toolchain import tools


@dataclass(frozen=True)
class Cluster:
    """A cluster on this machine."""

    instance: Instance

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "devtools.localkube", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "LOCALKUBE_NAME": self.instance.name}

    def run(
        self, *arguments: str, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"localkube {' '.join(arguments)}: {done.stderr}")
        return done

    def kubectl_command(self, *arguments: str) -> list[str]:
        return [str(tools.tool("kube")), *kubectl_arguments(self.instance), *arguments]

    def kubectl(self, *arguments: str, document: Any = None, check: bool = True) -> str:
        done = subprocess.run(
            self.kubectl_command(*arguments),
            input=None if document is None else json.dumps(document),
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout + done.stderr

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Create or change objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "--filename=-", document=listed)

    def get(self, pod: str, url: str) -> str:
        """Return the response that a pod of the probe gets from a URL, or the error."""
        return self.kubectl("exec", pod, "--", "/probe", "get", url, check=False)

    def processes(self) -> dict[str, dict[str, Any]]:
        return health.read_status(self.instance)

    def host_process(self, component: str) -> psutil.Process:
        """Return the component's process. The node records its number only in the node's PID
        namespace.
        """
        processes = NodeProcesses.read(self.instance)
        if processes is None:
            pytest.fail("the cluster has no file with its processes")
        wanted = self.processes()[component]["pid"]
        for process in psutil.Process(processes.init.pid).children():
            if number_inside(process) == wanted:
                return process
        return pytest.fail(f"{component} (process {wanted} in the node) does not run")

    def is_healthy(self) -> bool:
        return health.read_health(self.instance).is_healthy


def number_inside(process: psutil.Process) -> int:
    """Return the process's number in its own PID namespace: a container's or the node's."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))
