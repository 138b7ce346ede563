"""Values that contradict each other about names of objects and of worker groups."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"workerGroups": [{"name": "a"}, {"name": "a"}]},
        ["workerGroups", '"a"'],
        {"workerGroups": [{"name": "a"}, {"name": "b"}]},
    ),
    Contradiction(
        {"workerGroups": [{"name": "master"}]},
        ["workerGroups[].name", '"master"'],
        {"workerGroups": [{"name": "b"}]},
    ),
    Contradiction(
        {
            "fullnameOverride": "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr",
            "workerGroups": [{"name": "gggggggggggg"}],
        },
        ["StatefulSet name", "53"],
        {"workerGroups": [{"name": "ggggggggggg"}]},
    ),
    Contradiction(
        {"nameOverride": "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"},
        ["nameOverride", "48"],
        {"fullnameOverride": "n"},
    ),
]
