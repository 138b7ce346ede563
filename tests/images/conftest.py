from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from devtools.images.build import build
from devtools.images.catalogue import Image, When, load_catalogue
from devtools.images.prove import gpu_for, test_folders
from devtools.trials.sandbox import Sandbox, sandbox

# The examples on each TensorFlow.
EXAMPLES = ("examples", "examples-2.15")
Sandboxes = Callable[[str], Sandbox]
NEEDS_GPU = "needs a GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `python -m images prove` says."""
    parser.addoption("--prove", metavar="IMAGE", help="run the tests of this image, no others'")
    parser.addoption("--tally", metavar="FILE", help="write how many tests came out how")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Images that are tested apart are built for their own proof and for nothing else."""
    proving = config.getoption("--prove", default=None)
    apart = {
        name: test_folders(image)
        for name, image in load_catalogue().items()
        if image.tested is When.SEPARATELY
    }
    own = apart.get(proving, [])
    others = {folder for folders in apart.values() for folder in folders} - set(own)
    return True if collection_path in others else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of `image` run in every image with a framework that is not tested apart, or in the one
    that is being proved.
    """
    if "image" in metafunc.fixturenames:
        proving = metafunc.config.getoption("--prove", default=None)
        usual = [
            image.name
            for image in load_catalogue().values()
            if image.framework and image.tested is When.ALWAYS
        ]
        names = [proving] if proving else usual
        metafunc.parametrize("image", names, indirect=True, scope="session")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    file = config.getoption("--tally", default=None)
    if file:
        stats = terminalreporter.stats
        skipped = stats.get("skipped", [])
        gpu = [report for report in skipped if NEEDS_GPU in str(report.longrepr)]
        counts = {"passed": len(stats.get("passed", [])), "needed a GPU": len(gpu)}
        Path(file).write_text(json.dumps(counts | {"skipped": len(skipped) - len(gpu)}))


@pytest.fixture(scope="session")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxes]:
    """A sandbox of an image by its name, each built and mounted once."""
    with ExitStack() as opened:

        @cache
        def opens(name: str) -> Sandbox:
            folder = tmp_path_factory.mktemp(name) / "output"
            return opened.enter_context(sandbox(build(name), folder))

        yield opens


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Image:
    return load_catalogue()[request.param]


@pytest.fixture(scope="session")
def inside(image: Image, sandboxes: Sandboxes) -> Sandbox:
    """A sandbox of each runtime image in turn."""
    return sandboxes(image.name)


@pytest.fixture(scope="session")
def on_gpu(inside: Sandbox) -> Sandbox:
    """A sandbox of each runtime image in turn, with all GPUs of this machine."""
    if gpu_for(inside.image.engine) is None:
        pytest.skip(NEEDS_GPU)
    return inside.with_gpus()


@pytest.fixture(scope="session")
def gpus(on_gpu: Sandbox) -> int:
    """How many GPUs the driver shows."""
    shown = on_gpu.succeed("nvidia-smi", "--list-gpus").splitlines()
    assert shown
    return len(shown)


@pytest.fixture(scope="session")
def cpu(sandboxes: Sandboxes) -> Sandbox:
    return sandboxes("cpu")


@pytest.fixture(scope="session")
def cpu_2_15(sandboxes: Sandboxes) -> Sandbox:
    return sandboxes("cpu-2.15")


@pytest.fixture(scope="session")
def examples(sandboxes: Sandboxes) -> Sandbox:
    return sandboxes("examples")


@pytest.fixture(scope="session", params=EXAMPLES)
def each_examples(request: pytest.FixtureRequest, sandboxes: Sandboxes) -> Sandbox:
    """A sandbox of the examples on each runtime image in turn."""
    return sandboxes(str(request.param))


@pytest.fixture
def output(each_examples: Sandbox, request: pytest.FixtureRequest) -> Path:
    """A folder of this test's own below /output, writable for any user."""
    folder = each_examples.folder / str(request.node.originalname)
    folder.mkdir()
    folder.chmod(0o777)
    return folder
