"""The requests of pods on a node as whole numbers: CPUs in thousandths, memory in bytes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from hvdchart.quantity import parse_quantity
from hvdchart.run.state.release import Object


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
    for name, amount in amounts(spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + amount
    return total


def _requests(container: Object) -> dict[str, int]:
    """Return a container's requests; Kubernetes uses the limit for a missing request."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return amounts({**limits, **(resources.get("requests") or {})})


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities as whole numbers, rounded up as the scheduler does; CPUs in thousandths."""
    found = {}
    for name, text in quantities.items():
        unit = 1000 if name == "cpu" else 1
        found[name] = math.ceil(parse_quantity(str(text)) * unit)
    return found
