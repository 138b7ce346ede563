"""hvdchart bench on a real cluster: one worker and two, in turns in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.command import hvdchart, namespace_options, write_spec
from tests.support.namespace import Namespace

SMALL = "--image-size 32 --warmup 1 --rounds 2 --steps 1"


@pytest.mark.rare
def test_one_and_two_workers_are_measured_in_turns(namespace: Namespace, tmp_path: Path) -> None:
    node = {"name": "n", "count": 2, "shared": True, "coresPerSocket": 1, "memory": "2Gi"}
    nodes = [{**node, "tuning": {"cpu": "50m"}}]
    spec = write_spec(tmp_path, namespace, ["python3", "-V"], nodes=nodes)
    options = ["--turns", "2", "--model", "mobilenet2", "--batch-size", "2", "--arguments", SMALL]
    options += ["-o", "json"]
    done = hvdchart(namespace, "bench", spec, *options, *namespace_options(namespace))
    result = json.loads(done.stdout)
    assert [(row["workers"], row["ranks"], len(row["turns"])) for row in result["rows"]] == [
        (1, 1, 2),
        (2, 2, 2),
    ]
    assert all(speed > 0 for row in result["rows"] for speed in row["turns"])
    assert len(result["nodes"]) == 2
    namespace.wait_until_gone("all")
