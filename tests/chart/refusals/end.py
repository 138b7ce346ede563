"""Values that contradict each other about how the run ends."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"master": {"ttlSecondsAfterFinished": 60}},
        ["master.ttlSecondsAfterFinished", "cleanup"],
        {"cleanup": "Always"},
    ),
    Contradiction(
        {"cleanup": "Always", "serviceAccount": {"create": False}},
        ["cleanup", "serviceAccount.create"],
        {"serviceAccount": {"name": "own"}},
    ),
]
