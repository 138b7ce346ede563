"""What takes the room of a node: requests of pods, daemons and taints. Pure.

Amounts are whole numbers: CPUs in thousandths, memory in bytes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from hvdchart.quantity import parse_quantity
from hvdchart.run.state.release import Object

# Taints that Kubernetes itself sets while a node has a problem.
_CONDITION_TAINT = re.compile(r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/")
# The owners of pods that run on every node: DaemonSets, and the node itself for static pods.
_DAEMON_OWNERS = {"DaemonSet", "Node"}


def pod_requests(pod: Object) -> dict[str, int]:
    """Return a pod's effective requests, as the scheduler computes them.

    They are the sum over containers and sidecars, or the requests of an init container with the
    sidecars before it if these are higher, plus the overhead. Source: Kubernetes documentation,
    "Sidecar Containers".
    """
    spec = pod.get("spec", {})
    running: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            running.update(requests)
            continue
        for name, amount in requests.items():
            largest[name] = max(largest.get(name, 0), running[name] + amount)
    for container in spec.get("containers") or []:
        running.update(_requests(container))
    total = {name: max(running[name], largest.get(name, 0)) for name in {*running, *largest}}
    for name, amount in parse_amounts(spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + amount
    return total


def is_daemon(pod: Object) -> bool:
    """Return whether a pod runs on its node whatever else does: of a DaemonSet, or a static pod."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    return any(owner.get("kind") in _DAEMON_OWNERS for owner in owners)


def is_condition_taint(key: str) -> bool:
    """Return whether Kubernetes sets the taint with this key while a node has a problem."""
    return bool(_CONDITION_TAINT.match(key))


def _requests(container: Object) -> dict[str, int]:
    """Return a container's requests; Kubernetes uses the limit for a missing request."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return parse_amounts({**limits, **(resources.get("requests") or {})})


def parse_amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities as whole numbers, rounded up as the scheduler does; CPUs in thousandths."""
    numbers = {}
    for name, text in quantities.items():
        unit = 1000 if name == "cpu" else 1
        numbers[name] = math.ceil(parse_quantity(str(text)) * unit)
    return numbers
