"""An API server that asks who calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.secure import SecureApi


@pytest.fixture
def api(tmp_path: Path) -> Iterator[SecureApi]:
    folder = tmp_path / "server"
    folder.mkdir()
    with SecureApi(folder).running() as server:
        yield server
