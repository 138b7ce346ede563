"""The examples, as plain Helm runs them in the stock image: the script is part of the values."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Namespace
from tests.results import read_result

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = [
    *("--model", "mobilenet2", "--image-size", "32", "--batch-size", "2"),
    *("--warmup", "1", "--rounds", "3", "--steps", "1"),
]


def test_benchmark_measures_two_ranks(namespace: Namespace) -> None:
    script = (EXAMPLES / "benchmark.py").read_text()
    values = {
        "code": {"files": {"benchmark.py": script}},
        "master": {"args": ["python", "benchmark.py", *SMALL], "backoffLimit": 0},
    }
    result = read_result(namespace.train("hvd", values))
    assert (result["ranks"], len(result["perRank"]), len(result["rounds"])) == (2, 2, 3)
    assert result["imagesPerSecond"] > 0
    # Both are means of the same rounds.
    assert abs(sum(result["perRank"]) - result["imagesPerSecond"]) < 0.01
