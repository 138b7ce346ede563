"""Values that contradict each other about staged data."""

from __future__ import annotations

from tests.chart.refusals.contradiction import AT_DATA, Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"staging": {"command": ["true"]}, "volumeMounts": AT_DATA},
        ["staging.command", "staging.path"],
        {"staging": {"path": "/data/x"}},
    ),
    Contradiction(
        {"staging": {"path": "/data/x"}, "volumeMounts": AT_DATA},
        ["staging.path", "staging.command"],
        {"staging": {"command": ["true"]}},
    ),
    Contradiction(
        {"staging": {"command": ["true"], "path": "/data/x"}},
        ["staging.path", "volumeMounts"],
        {"volumeMounts": AT_DATA},
    ),
    Contradiction(
        {"staging": {"command": ["true"], "path": "/data/x"}, "workerGroups": [{"name": "a"}]},
        ["staging.path", "workerGroups[a].volumeMounts"],
        {"volumeMounts": AT_DATA},
    ),
    Contradiction(
        {"staging": {"command": ["true"], "path": "/data/"}, "volumeMounts": AT_DATA},
        ["staging.path", "volumeMounts", "mountPath"],
        {"staging": {"path": "/data/x"}},
    ),
    Contradiction(
        {"staging": {"command": ["true"], "path": "/database"}, "volumeMounts": AT_DATA},
        ["staging.path", "volumeMounts"],
        {"staging": {"path": "/data/x"}},
    ),
]
