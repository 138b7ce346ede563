"""Values that contradict each other about the network and ports."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

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
]
