"""A namespace of the real API server, for releases that need neither pods nor images."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Namespace


@pytest.fixture
def place(kubeconfig: Path) -> Iterator[Namespace]:
    """An empty namespace."""
    made = Namespace(f"kept-{secrets.token_hex(4)}", kubeconfig, "registry.example/team/resnet:1.0")
    made.kubectl("create", "namespace", made.name)
    yield made
    made.kubectl("delete", "namespace", made.name, "--wait=false")
