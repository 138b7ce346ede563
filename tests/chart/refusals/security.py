"""Values that contradict each other about the users of the pods, and what Linux lets them do."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"workerGroups": [{"name": "rdma", "capabilities": ["IPC_LOCK"]}]},
        ["workerGroups[rdma].capabilities", "podSecurityContext.runAsUser"],
        {"podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False}},
    ),
    Contradiction(
        {"podSecurityContext": {"runAsUser": 0}},
        ["podSecurityContext.runAsUser", "runAsNonRoot"],
        {"podSecurityContext": {"runAsNonRoot": False}},
    ),
]
