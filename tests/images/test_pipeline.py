"""examples/pipeline.py with TensorFlow: each image once in an epoch, on one of the ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_image.sandbox import Sandbox

LABELS = [number * 40 + index for number in range(4) for index in range(16)]


@pytest.fixture(scope="module")
def said(examples: Sandbox) -> dict[str, Any]:
    """What two ranks have seen in each case of pipeline_cases.py."""
    cases = Path(__file__).with_name("pipeline_cases.py").read_text()
    answers: dict[str, Any] = json.loads(examples.python(cases))
    return answers


every_cache = pytest.mark.parametrize("cache", ["memory", "disk", "none"])


@every_cache
def test_each_image_is_seen_once_in_an_epoch(said: dict[str, Any], cache: str) -> None:
    first, second = said[cache]["seen"]
    assert sorted(first + second) == LABELS
    assert not set(first) & set(second)


@every_cache
def test_images_belong_to_their_labels(said: dict[str, Any], cache: str) -> None:
    assert said[cache]["right"]


@every_cache
def test_images_are_shuffled(said: dict[str, Any], cache: str) -> None:
    first, _ = said[cache]["seen"]
    assert first != sorted(first)


def test_each_rank_has_a_cache_file_of_its_own(said: dict[str, Any]) -> None:
    assert said["cache files"] == ["cache-0.index", "cache-1.index"]


def test_next_epoch_has_the_same_augmented_images_in_another_order(said: dict[str, Any]) -> None:
    augmented = [label + 1000 for label in LABELS[:16]]
    first, second = said["orders"]
    assert sorted(first) == sorted(second) == augmented
    assert first != second
