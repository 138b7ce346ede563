"""The schema refuses values of a wrong form, and names their key."""

from __future__ import annotations

import pytest

from tests.chart.cases import case_id
from tests.chart.render import Values, helm_template

# Values, and what the message names.
WRONG_VALUES: list[tuple[Values, list[str]]] = [
    ({"wrkr": {}}, ["wrkr"]),
    ({"launch": {"mode": "mpiexec"}}, ["/launch/mode"]),
    ({"worker": {"number": "two"}}, ["/worker/number"]),
    ({"image": {"repository": "r.example:5000/a:1"}}, ["/image/repository", "r.example:5000/a:1"]),
    ({"worker": {"image": {"repository": "python:3.11"}}}, ["/worker/image/repository"]),
    ({"agent": {"port": 1023}}, ["/agent/port"]),
    ({"agent": {"generation": 0}}, ["/agent/generation"]),
    ({"launch": {"preload": ["a..b"]}}, ["/launch/preload/0"]),
    ({"fullnameOverride": "a.b"}, ["/fullnameOverride", "a.b"]),
    ({"fullnameOverride": "r" * 48}, ["/fullnameOverride", "47"]),
    ({"workerGroups": [{"name": "1"}]}, ["/workerGroups/0/name"]),
    ({"workerGroups": [{"name": "a", "number": None}]}, ["/workerGroups/0/number"]),
    *(
        ({"worker": {"resources": {"limits": {"nvidia.com/gpu": count}}}}, ["nvidia.com~1gpu"])
        for count in ("1k", "8e0", "08", "8.0", "1Ki", "+8", "0x8", "", "1000000000", 0.5, -1, 1e10)
    ),
    ({"workerGroups": [{"name": "a", "resources": {"limits": {"b.c/d": "1k"}}}]}, ["b.c~1d"]),
    ({"code": {"files": {"src/train.py": ""}}}, ["/code/files", "src/train.py"]),
    # As --set-file makes it of a name without backslashes.
    ({"code": {"files": {"train": {"p y": ""}}}}, ["/code/files/train", "p y"]),
]


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@pytest.mark.parametrize(("values", "names"), WRONG_VALUES, ids=case_id)
def test_schema_error_names_the_key(helm: str, values: Values, names: list[str]) -> None:
    done = helm_template(values, helm=helm)
    assert done.returncode != 0
    assert [name for name in names if name not in done.stderr] == [], done.stderr
