"""`python -m images prove`: builds an image that is tested separately and runs its tests in it."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.common.ui import note
from devtools.images.build import build
from devtools.images.catalogue import ROOT, Image, When, find, load_catalogue
from devtools.images.content import content_of, has_patch
from devtools.images.engine import Engine
from devtools.images.inside import unpacked_size
from devtools.images.proof import Proof, write

# NVIDIA's driver lists the GPUs here.
_GPUS = Path("/proc/driver/nvidia/gpus")
_TESTS = ROOT / "tests" / "images"


def prove(name: str) -> Path:
    """Builds image `name`, runs its tests and writes its proof; returns the proof's file.

    Raises ImageError when a test fails, and for an image that is tested in every run.
    """
    images = load_catalogue()
    image = find(images, name)
    if image.tested is When.ALWAYS:
        raise ImageError(f"{name} needs no proof: every run tests it", "make test")
    tests = tests_of(image)
    content = content_of(image, images)
    built = build(name)
    gpu = gpu_for(built.engine)
    note(f"running the tests of {name} in it")
    counts = run_tests(name, tests)
    again = load_catalogue()
    if content_of(find(again, name), again) != content:
        raise ImageError(f"{name} was changed while it was being proved", "prove it again")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    proof = Proof(
        content=content,
        day=today,
        reference=image.reference,
        versions=dict(image.versions),
        bytes=unpacked_size(built),
        passed=counts["passed"],
        gpu=gpu or "none",
        needed_gpu=counts["needed a GPU"],
    )
    return write(image, proof)


def test_folders(image: Image) -> list[Path]:
    """The folders with the tests of a separately tested image: its own, which NAME-next (the same
    with a newer framework) shares, and the one that all images for GPUs share.
    """
    own = re.sub("[^a-z0-9]", "_", image.name.removesuffix("-next"))
    names = [own, *(["nvidia"] if "nccl" in image.features else [])]
    return [_TESTS / name for name in names]


def tests_of(image: Image) -> list[Path]:
    """What `prove` runs in an image. Raises ImageError when it has no tests of its own."""
    folders = test_folders(image)
    for folder in folders:
        if not folder.is_dir():
            raise ImageError(
                f"{image.name} has no tests of its own: there is no {folder}", "write some"
            )
    elastic = [_TESTS / "test_elastic.py"] if has_patch(image, "elastic.patch") else []
    return [_TESTS / "test_runtimes.py", *elastic, *folders]


def run_tests(name: str, tests: list[Path]) -> dict[str, int]:
    """The number of tests by outcome. Raises ImageError when one fails or is skipped."""
    with tempfile.TemporaryDirectory(prefix="hvd-prove-") as folder:
        tally = Path(folder) / "tally.json"
        command = [sys.executable, "-m", "pytest", "-q", f"--prove={name}", f"--tally={tally}"]
        done = subprocess.run([*command, *map(str, tests)], cwd=ROOT, check=False)
        if done.returncode != 0:
            raise ImageError(
                f"the tests of {name} exited with status {done.returncode}; its proof is unchanged",
                "correct the cause and prove it again",
            )
        counts: dict[str, int] = json.loads(tally.read_text())
    if counts["skipped"]:
        raise ImageError(f"{counts['skipped']} tests of {name} were skipped", "enable them")
    return counts


def gpu_for(engine: Engine) -> str | None:
    """The model of this machine's GPU, or None. Raises ImageError when there is one and the engine
    cannot give it to a container.
    """
    lines = [line for file in _GPUS.glob("*/information") for line in file.read_text().splitlines()]
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if models and engine.program == "buildah":
        raise ImageError(
            f"this machine has a GPU ({models[0]}), and Buildah cannot give it to a container",
            "use Docker or Podman with NVIDIA's container toolkit: HVD_IMAGE_ENGINE=docker",
        )
    return models[0] if models else None
