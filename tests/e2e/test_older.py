"""Training in pods on the TensorFlow that Horovod was released for.

`pytest --examples examples-2.15 tests/e2e` runs all that are here on it; this one is run each time.
"""

from __future__ import annotations

from dataclasses import replace

from tests.e2e.cluster import Namespace
from tests.results import read_result


def test_digits_example_trains_on_keras_2(namespace: Namespace, older_image: str) -> None:
    older = replace(namespace, image=older_image)
    train = {"args": ["python", "/examples/digits.py"]}
    result = read_result(older.train("hvd", {"worker": {"number": 2}, "master": train}))
    assert (result["ranks"], result["disagreeing_ranks"]) == (2, [])
    assert result["accuracy"] >= 0.95
