"""kubectl with this cluster's own kubeconfig. The user's is neither read nor written."""

from __future__ import annotations

from devtools.common.commands import read_output
from devtools.common.errors import LocalkubeError
from devtools.localkube.instance import Instance
from devtools.localkube.processes import kubectl_arguments
from devtools.toolchain.tools import tool


def kubectl(instance: Instance, *arguments: str) -> str:
    """Runs kubectl and returns what it prints. Raises LocalkubeError when it fails."""
    return read_output(
        [str(tool("kube")), *kubectl_arguments(instance), *arguments],
        remedy=f"read the components' logs in {instance.logs}",
        error=LocalkubeError,
    )
