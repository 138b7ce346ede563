"""Values that contradict each other about fields of pods that the chart sets itself."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"worker": {"podSpec": {"nodeSelector": {}}}},
        ["worker.podSpec", "nodeSelector"],
        {"worker": {"podSpec": None, "nodeSelector": {"a": "b"}}},
    ),
    Contradiction(
        {"workerGroups": [{"name": "a", "podSpec": {"containers": []}}]},
        ["workerGroups[a].podSpec", "containers"],
        {"workerGroups": [{"name": "a", "extraContainers": [{"name": "x"}]}]},
    ),
    Contradiction(
        {"master": {"podSpec": {"containers": []}}},
        ["master.podSpec", "containers"],
        {"master": {"podSpec": None, "initContainers": [{"name": "x", "restartPolicy": "Always"}]}},
    ),
    Contradiction(
        {"worker": {"podSpec": {"subdomain": "x"}}},
        ["worker.podSpec", "subdomain"],
        {"worker": {"podSpec": None}},
    ),
    Contradiction(
        {"hostNetwork": True, "worker": {"podSpec": {"dnsPolicy": "Default"}}},
        ["worker.podSpec", "dnsPolicy"],
        {"hostNetwork": True, "worker": {"podSpec": None}},
    ),
    Contradiction(
        {"master": {"container": {"command": ["x"]}}},
        ["master.container", "command"],
        {"master": {"container": None, "args": ["x"]}},
    ),
]
