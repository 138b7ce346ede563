from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from images.build import build
from images.catalogue import Image, load_catalogue
from tests.images.sandbox import Sandbox, sandbox

# The images with a framework that the tests of test_runtimes.py run in.
RUNTIMES = ("cpu", "cpu-next")
Sandboxes = Callable[[str], Sandbox]


@pytest.fixture(scope="session")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxes]:
    """A sandbox of an image by its name, each built and mounted once."""
    with ExitStack() as opened:

        @cache
        def opens(name: str) -> Sandbox:
            folder = tmp_path_factory.mktemp(name) / "output"
            return opened.enter_context(sandbox(build(name), folder))

        yield opens


@pytest.fixture(scope="session", params=RUNTIMES)
def image(request: pytest.FixtureRequest) -> Image:
    return load_catalogue()[request.param]


@pytest.fixture(scope="session")
def inside(image: Image, sandboxes: Sandboxes) -> Sandbox:
    """A sandbox of each runtime image in turn."""
    return sandboxes(image.name)


@pytest.fixture(scope="session")
def cpu(sandboxes: Sandboxes) -> Sandbox:
    return sandboxes("cpu")


@pytest.fixture(scope="session")
def examples(sandboxes: Sandboxes) -> Sandbox:
    return sandboxes("examples")


@pytest.fixture
def output(examples: Sandbox, request: pytest.FixtureRequest) -> Path:
    """A folder of this test's own below /output, writable for any user."""
    folder = examples.folder / str(request.node.name)
    folder.mkdir()
    folder.chmod(0o777)
    return folder
