"""examples/pipeline.py with TensorFlow: each image once in an epoch, on one of the ranks."""

from __future__ import annotations

import json
from pathlib import Path

from devtools.trials.sandbox import Sandbox

LABELS = [number * 40 + index for number in range(4) for index in range(16)]


def test_each_image_is_seen_once_in_an_epoch(examples: Sandbox) -> None:
    cases = Path(__file__).with_name("pipeline_cases.py").read_text()
    said = json.loads(examples.python(cases))
    for cache in ("memory", "disk", "none"):
        first, second = said[cache]["seen"]
        assert said[cache]["right"], f"{cache}: images do not belong to their labels"
        assert sorted(first + second) == LABELS
        assert not set(first) & set(second)
        # Shuffled.
        assert first != sorted(first)
    assert said["cache files"] == ["cache-0.index", "cache-1.index"]
    augmented = [label + 1000 for label in LABELS[:16]]
    first, second = said["orders"]
    assert sorted(first) == sorted(second) == augmented
    assert first != second
