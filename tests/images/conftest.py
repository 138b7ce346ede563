"""Sandboxes of images, in which the tests of this folder run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from images.builder import catalogue
from images.builder.build import build_image
from images.builder.catalogue import Image, When
from images.builder.content import has_patch
from images.builder.separate_tests import NEEDS_GPU, SEPARATE, gpu_for
from tests.images.sandboxes import Sandboxes, in_image
from tests.support.in_image.sandbox import Sandbox, sandbox

# Collecting the tests reads it many times.
load_catalogue = cache(catalogue.load_catalogue)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that `python -m images test` and `make try-tensorflow` use."""
    parser.addoption("--image", metavar="IMAGE", help="run the tests of this image only")
    parser.addoption(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="test the image cpu with other versions, also with new ones",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of `image` run in every image with a framework that is tested in every run, or in the
    image of `--image`; those of a patch only where Horovod has it, and those of images that are
    tested separately, or of a patch that no other image has, only with `--image`.
    """
    if "image" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--image", default=None)
    images = load_catalogue()
    usual = {name: image for name, image in images.items() if image.tested is When.ALWAYS}
    names = [chosen] if chosen else [name for name, image in usual.items() if image.framework]
    for mark in metafunc.definition.iter_markers("patch"):
        names = [name for name in names if has_patch(images[name], *mark.args)]
    rows = [pytest.param(name) for name in names]
    if not chosen and (not names or SEPARATE in metafunc.definition.path.parents):
        separate = " | ".join(name for name in images if name not in usual)
        skip = pytest.mark.skip(f"tested separately: python -m images test {separate}")
        rows = [pytest.param("none", marks=skip)]
    metafunc.parametrize("image", rows, indirect=True, scope="session")


@pytest.fixture(scope="session")
def sandboxes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Sandboxes]:
    """Returns the sandbox of an image by name; each is built and mounted once."""
    settings = dict(item.split("=", 1) for item in request.config.getoption("settings", default=[]))
    with ExitStack() as opened:

        @cache
        def open_sandbox(name: str) -> Sandbox:
            folder = tmp_path_factory.mktemp(name) / "output"
            others = settings if name == "cpu" else {}
            built = build_image(name, overrides=others, allows_untested=bool(others))
            return opened.enter_context(sandbox(built, folder))

        yield open_sandbox


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Image:
    return load_catalogue()[request.param]


@pytest.fixture(scope="session")
def inside(image: Image, sandboxes: Sandboxes) -> Sandbox:
    return sandboxes(image.name)


@pytest.fixture(scope="session")
def on_gpu(inside: Sandbox) -> Sandbox:
    """A sandbox of each runtime image in turn, with all GPUs of the machine."""
    if gpu_for(inside.image.engine) is None:
        pytest.skip(NEEDS_GPU)
    return inside.with_gpus()


@pytest.fixture(scope="session")
def gpus(on_gpu: Sandbox) -> int:
    shown = on_gpu.succeed("nvidia-smi", "--list-gpus").splitlines()
    assert shown
    return len(shown)


cpu = in_image("cpu")
examples = in_image("examples")
