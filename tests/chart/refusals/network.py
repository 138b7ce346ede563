"""Values that contradict each other about the network and ports."""

from __future__ import annotations

from tests.chart.cases import CONTAINER, NATIVE
from tests.chart.refusals.contradiction import Contradiction

AGENT_PORT = {"ports": [{"containerPort": 2222}]}

CONTRADICTIONS = [
    Contradiction(
        {"networkPolicy": {"enabled": True}, "hostNetwork": True},
        ["networkPolicy.enabled", "hostNetwork"],
        {"networkPolicy": {"enabled": False}},
    ),
    Contradiction(
        {"serviceMesh": "Ambient", "hostNetwork": True},
        ["serviceMesh", "hostNetwork"],
        {"hostNetwork": False},
    ),
    Contradiction(
        {"hostNetwork": True, "agent": {"port": 6443}},
        ["hostNetwork", "agent.port"],
        {"agent": {"port": 2222}},
    ),
    Contradiction(
        {"hostNetwork": True, "agent": {"port": 32000}},
        ["hostNetwork", "agent.port"],
        {"agent": {"port": 2222}},
    ),
    Contradiction(
        {"hostNetwork": True, "metrics": {"enabled": True, "port": 10250}},
        ["hostNetwork", "metrics.port"],
        {"metrics": {"port": 9400}},
    ),
    # A native sidecar runs beside the worker; another init container has ended before.
    Contradiction(
        {"worker": {"initContainers": [{**NATIVE, **AGENT_PORT}]}},
        ["agent.port", "worker.initContainers"],
        {"worker": {"initContainers": [{**CONTAINER, **AGENT_PORT}]}},
    ),
]
