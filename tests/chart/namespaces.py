"""Namespaces of the real API server without pods and images, for a test or a module."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.namespace import Namespace


@contextmanager
def empty_namespace(kubeconfig: Path) -> Iterator[Namespace]:
    """Make a namespace for the block, and delete it afterwards without waiting for its end."""
    made = Namespace(f"kept-{secrets.token_hex(4)}", kubeconfig, "registry.example/team/resnet:1.0")
    made.kubectl("create", "namespace", made.name)
    yield made
    made.kubectl("delete", "namespace", made.name, "--wait=false")
