"""Training in pods on the newest TensorFlow that there is an image of.

`pytest --examples examples-next tests/e2e` runs all that are here on it; this one is run each time.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tests.e2e.cluster import Namespace


def test_the_digits_example_trains_on_keras_3(namespace: Namespace, next_image: str) -> None:
    newest = replace(namespace, image=next_image)
    train = {"args": ["python", "/examples/digits.py"]}
    newest.install("hvd", {"worker": {"number": 2}, "master": train})
    assert newest.wait_for_end("hvd") == "Complete", newest.describe("hvd")
    (line,) = (line for line in newest.log("hvd").splitlines() if "RESULT {" in line)
    result = json.loads(line.partition("RESULT ")[2])
    assert (result["ranks"], result["disagreeing_ranks"]) == (2, [])
    assert result["accuracy"] >= 0.95
