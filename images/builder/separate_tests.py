"""Tests of images that take too long to be built and tested in every run: `python -m images test`
builds such an image, runs its tests and writes the results into the image's folder.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import yaml

from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from devtools.common.ui import note
from hvdchart.image.engines import run_in
from images.builder.build import BuiltImage, build_image
from images.builder.build_engines import Engine
from images.builder.catalogue import Image, When, find_image, load_catalogue
from images.builder.content import content_of, has_patch

FILE = "test-results.yaml"
# NVIDIA's driver lists the GPUs in this folder.
_GPUS = Path("/proc/driver/nvidia/gpus")
_TESTS = ROOT / "tests" / "images"
# The tests of images that are tested separately, all of which are for NVIDIA's GPUs.
SEPARATE = _TESTS / "nvidia"
# The tests of what only a Horovod with a patch has.
_OF_PATCHES = {
    "elastic.patch": _TESTS / "test_elastic.py",
    "xla-operations.patch": _TESTS / "test_xla.py",
}
NEEDS_GPU = "needs a GPU"
_HEAD = """\
# Written by `python -m images test {name}`, which builds the image and runs its tests.
# `content` is a key of the content that the image was built from.
"""


@dataclass(frozen=True)
class Results:
    """The results of the tests of one image, and the content that was tested."""

    content: str
    day: str  # YYYY-MM-DD, in UTC
    reference: str
    versions: Mapping[str, str]
    bytes: int  # unpacked
    passed: int  # number of tests
    gpu: str  # the model that tests ran on, or "none"
    needed_gpu: int  # number of tests that were skipped without a GPU


def write_results(image: Image, results: Results) -> Path:
    file = image.folder / FILE
    head = _HEAD.format(name=image.name)
    file.write_text(head + yaml.safe_dump(asdict(results), sort_keys=False))
    return file


def read_results(image: Image) -> Results:
    """Return the test results of an image. Raises DevtoolsError if they are missing."""
    file = image.folder / FILE
    if not file.is_file():
        raise DevtoolsError(
            f"{image.name} is tested separately and has no {file}",
            f"python -m images test {image.name}",
        )
    return Results(**yaml.safe_load(file.read_text()))


def describe_tests(image: Image, images: Mapping[str, Image]) -> str:
    """Return a description of how an image is tested."""
    if image.tested is When.ALWAYS:
        return "tested in every run"
    results = read_results(image)
    is_present = results.content == content_of(image, images)
    when = "for the present content" if is_present else "before the last change of its content"
    return f"tested on {results.day}, {when}"


def build_and_test(name: str) -> Path:
    """Build image `name`, run its tests and write the results; return their file.

    Raises DevtoolsError if a test fails, and for an image that is tested in every run.
    """
    images = load_catalogue()
    image = find_image(images, name)
    if image.tested is When.ALWAYS:
        raise DevtoolsError(f"every run of the tests tests {name}", "make test")
    content = content_of(image, images)
    built = build_image(name)
    gpu = gpu_for(built.engine)
    note(f"running the tests of {name} in it")
    passed, needed_gpu = run_tests(name, tests_of(image))
    again = load_catalogue()
    if content_of(find_image(again, name), again) != content:
        raise DevtoolsError(f"{name} was changed while it was being tested", "test it again")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    results = Results(
        content=content,
        day=today,
        reference=image.reference,
        versions=dict(image.versions),
        bytes=unpacked_size(built),
        passed=passed,
        gpu=gpu or "none",
        needed_gpu=needed_gpu,
    )
    return write_results(image, results)


def tests_of(image: Image) -> list[Path]:
    """Return the tests that run in an image which is tested separately."""
    patch_tests = [file for patch, file in _OF_PATCHES.items() if has_patch(image, patch)]
    return [_TESTS / "test_runtimes.py", *patch_tests, SEPARATE]


def run_tests(name: str, tests: list[Path]) -> tuple[int, int]:
    """Return how many tests passed, and how many need a GPU that this machine lacks.

    Raises DevtoolsError if a test fails or is skipped for another reason.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-test-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--image={name}", f"--junit-xml={report}"]
        done = subprocess.run([*command, *map(str, tests)], cwd=ROOT, check=False)
        if done.returncode != 0:
            raise DevtoolsError(
                f"the tests of {name} exited with status {done.returncode}; no results are written",
                "correct the cause and test it again",
            )
        cases = ElementTree.parse(report).iter("testcase")  # noqa: S314  (pytest wrote it)
        skips = [case.find("skipped") for case in cases]
    skipped = [str(skip.get("message")) for skip in skips if skip is not None]
    gpu = [reason for reason in skipped if NEEDS_GPU in reason]
    if len(skipped) > len(gpu):
        others = len(skipped) - len(gpu)
        raise DevtoolsError(f"{others} tests of {name} were skipped", "enable them")
    return len(skips) - len(skipped), len(gpu)


def gpu_for(engine: Engine) -> str | None:
    """Return the model of this machine's first GPU, or None without one.

    Raises DevtoolsError for an engine that cannot give it to a container.
    """
    lines = [line for file in _GPUS.glob("*/information") for line in file.read_text().splitlines()]
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if models and engine.program == "buildah":
        raise DevtoolsError(
            f"this machine has a GPU ({models[0]}), and Buildah cannot give it to a container",
            "use Docker or Podman with NVIDIA's container toolkit: HVD_IMAGE_ENGINE=docker",
        )
    return models[0] if models else None


def unpacked_size(image: BuiltImage) -> int:
    """Return the size of all files in an image, in bytes.

    Raises DevtoolsError if `du` does not run in it.
    """
    du = ["du", "--summarize", "--bytes", "--one-file-system", "/"]
    # It exits with 1, because root without capabilities cannot open some empty folders.
    done = run_in(image.reference, du, 0, image.engine.program)
    if not done.stdout.strip():
        raise DevtoolsError(
            f"{image.reference}: `du` printed no size: {done.stderr.strip()}", "run it by hand"
        )
    return int(done.stdout.split()[0])
