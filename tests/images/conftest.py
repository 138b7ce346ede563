from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from images.build import build
from tests.images.sandbox import Sandbox, sandbox


@pytest.fixture(scope="session")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with sandbox(build("cpu"), tmp_path_factory.mktemp("cpu") / "output") as inside:
        yield inside


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with sandbox(build("examples"), tmp_path_factory.mktemp("examples") / "output") as inside:
        yield inside


@pytest.fixture
def output(examples: Sandbox, request: pytest.FixtureRequest) -> Path:
    """A folder of this test's own below /output, writable for any user."""
    folder = examples.folder / str(request.node.name)
    folder.mkdir()
    folder.chmod(0o777)
    return folder
