"""Values that contradict each other about the Secrets with the keys of master and workers."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"agent": {"masterSecret": "a"}},
        ["agent.masterSecret", "agent.workerSecret"],
        {"agent": {"workerSecret": "b"}},
    ),
    Contradiction(
        {"agent": {"workerSecret": "b"}},
        ["agent.masterSecret", "agent.workerSecret"],
        {"agent": {"masterSecret": "a"}},
    ),
    Contradiction(
        {"agent": {"masterSecret": "a", "workerSecret": "a"}},
        ["agent.masterSecret", "agent.workerSecret"],
        {"agent": {"workerSecret": "b"}},
    ),
]
