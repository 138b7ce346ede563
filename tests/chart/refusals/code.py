"""Values that contradict each other about the user's code."""

from __future__ import annotations

from tests.chart.refusals.contradiction import Contradiction

CONTRADICTIONS = [
    Contradiction(
        {"code": {"files": {"a.py": "", "b.py": ""}}},
        ["code", "master.args"],
        {"master": {"args": ["python", "a.py"]}},
    ),
    Contradiction(
        {"code": {"archive": "UEsDBA=="}, "master": {"args": ["true"]}},
        ["code.archive"],
        {"code": {"archive": "H4sIzz"}},
    ),
]
