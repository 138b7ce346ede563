"""What tests say of the sandbox that they run in: which image it is of, and which Keras it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from images.inside.checks import WITH_TF_KERAS
from images.inside.sandbox import Sandbox

# What makes tf.keras Keras 3, and Keras 2; `make test` does not repeat a test with the latter.
EACH_KERAS = (
    pytest.param({}, id="keras 3"),
    pytest.param(WITH_TF_KERAS, id="keras 2", marks=pytest.mark.rare),
)
Sandboxes = Callable[[str], Sandbox]


def in_image(name: str) -> Any:
    """A fixture: the sandbox of this image."""
    return pytest.fixture(scope="session")(lambda sandboxes: sandboxes(name))
