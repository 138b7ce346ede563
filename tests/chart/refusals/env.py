"""Values that contradict each other about variables that use each other."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {
            "worker": {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "$(A)"},
                    {"name": "A", "value": "$(B)"},
                ]
            }
        },
        ["worker.env sets A", '"$(B)"'],
        {"worker": {"env": [{"name": "A", "value": "1"}]}},
    ),
    Contradiction(
        {"worker": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)x"}]}},
        ["worker.env sets A", '"$(A)x"'],
        {"worker": {"env": [{"name": "A", "value": "1x"}]}},
    ),
]
