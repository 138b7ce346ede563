"""The health of a cluster: its running processes, and the readiness of API server, node and DNS.
Also kubectl, which sends requests to the API server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.localkube.instance import Instance
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.probe import is_ok
from devtools.localkube.processes import kubectl_arguments
from devtools.toolchain.tools import tool


@dataclass(frozen=True)
class Part:
    """One line of the status: a process, or a service that must be ready."""

    name: str
    is_healthy: bool
    detail: str


@dataclass(frozen=True)
class Health:
    """is_running: the node's process 1 runs. is_healthy: it runs, and every part is healthy."""

    is_running: bool
    parts: list[Part] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        return self.is_running and all(part.is_healthy for part in self.parts)


def run_kubectl(instance: Instance, *arguments: str) -> str:
    """Run kubectl with this cluster's kubeconfig and return its output.

    Raises DevtoolsError, with what kubectl says, when it fails.
    """
    return read_output(
        [str(tool("kube")), *kubectl_arguments(instance), *arguments],
        remedy=f"read the components' logs in {instance.logs}",
    )


def read_health(instance: Instance) -> Health:
    """Query the components without changing them. This takes at most some seconds."""
    if not NodeProcesses.is_running(instance):
        return Health(is_running=False)
    parts = [
        *_check_processes(instance),
        _check_url(instance, "API server", instance.api_ready_url),
    ]
    if parts[-1].is_healthy:
        parts.append(_check_node(instance))
    parts.append(_check_url(instance, "cluster DNS", instance.dns_ready_url))
    return Health(is_running=True, parts=parts)


def _check_processes(instance: Instance) -> list[Part]:
    processes = read_status(instance)
    if not processes:
        return [Part("processes", is_healthy=False, detail="not started yet")]
    return [Part(name, process["ready"], _describe(process)) for name, process in processes.items()]


def read_status(instance: Instance) -> dict[str, dict[str, Any]]:
    """Return the state of each process by its name, as the node writes it; empty before the node
    starts.
    """
    path = instance.status
    processes: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return processes


def _describe(process: dict[str, Any]) -> str:
    if process["pid"]:
        state = "running" if process["ready"] else "starting"
    elif process["ready"]:
        state = "done"
    else:
        state = f"not running, last ended with {process['lastExit'] or 'nothing yet'}"
    return state + (f", restarted {process['restarts']} times" if process["restarts"] else "")


def _check_url(instance: Instance, name: str, url: str) -> Part:
    healthy = is_ok(url, instance.pki / "ca.crt")
    return Part(name, healthy, url if healthy else f"{url} does not answer 200")


def _check_node(instance: Instance) -> Part:
    name = instance.node_name
    try:
        node = json.loads(run_kubectl(instance, "get", "node", name, "--output=json"))
    except DevtoolsError as error:
        return Part("node", is_healthy=False, detail=error.problem)
    ready = [
        condition for condition in node["status"]["conditions"] if condition["type"] == "Ready"
    ]
    healthy = bool(ready) and ready[0]["status"] == "True"
    reason = ready[0].get("message", "") if ready else "no Ready condition yet"
    return Part("node", healthy, name if healthy else f"{name} is not Ready: {reason}")
