"""Calls of the cluster's own kubectl. The user's kubeconfig is neither read nor written."""

from __future__ import annotations

import subprocess

from devtools.common.errors import LocalkubeError
from devtools.localkube.instance import Instance
from devtools.localkube.processes import kubectl_arguments
from devtools.toolchain.tools import tool


def kubectl(instance: Instance, *arguments: str) -> str:
    """Runs kubectl and returns what it printed. Raises
    LocalkubeError.
    """
    command = [str(tool("kube")), *kubectl_arguments(instance), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalkubeError(
            f"kubectl {' '.join(arguments)}: {done.stderr.strip()}",
            f"read the components' logs in {instance.logs}",
        )
    return done.stdout
