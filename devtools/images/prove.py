"""`python -m images prove`: builds an image that no run of the tests builds, and runs its tests
inside it.
"""

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
from devtools.images.content import content_of
from devtools.images.engine import Engine
from devtools.images.inside import unpacked_size
from devtools.images.proof import Proof, write

# Where NVIDIA's driver says which GPUs there are.
_GPUS = Path("/proc/driver/nvidia/gpus")
_TESTS = ROOT / "tests" / "images"


def prove(name: str) -> Path:
    """Builds image `name`, runs its tests and writes its proof; returns the proof's file.

    Raises ImageError when a test fails, or when there is nothing to prove.
    """
    images = load_catalogue()
    image = find(images, name)
    if image.tested is When.ALWAYS:
        raise ImageError(f"{name} needs no proof: every run tests it", "make test")
    tests = tests_of(image)
    content = content_of(image, images)
    built = build(name)
    gpu = gpu_for(built.engine)
    note(f"running the tests of {name} inside it")
    found = run_tests(name, tests)
    again = load_catalogue()
    if content_of(find(again, name), again) != content:
        raise ImageError(f"{name} was changed while it was being proved", "prove it once more")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    proof = Proof(
        content=content,
        day=today,
        reference=image.reference,
        versions=dict(image.versions),
        bytes=unpacked_size(built),
        passed=found["passed"],
        gpu=gpu or "none",
        needed_gpu=found["needed a GPU"],
    )
    return write(image, proof)


def test_folders(image: Image) -> list[Path]:
    """Where the tests of an image are that is tested apart: its own, which are also those of the
    same on a newer framework (NAME-next), and those that it shares with other images for GPUs.
    """
    own = re.sub("[^a-z0-9]", "_", image.name.removesuffix("-next"))
    names = [own, *(["nvidia"] if "nccl" in image.features else [])]
    return [_TESTS / name for name in names]


def tests_of(image: Image) -> list[Path]:
    """What is run inside an image that is tested apart. Raises ImageError when it has no tests of
    its own.
    """
    folders = test_folders(image)
    for folder in folders:
        if not folder.is_dir():
            raise ImageError(
                f"{image.name} has no tests of its own: {folder} is not there", "write some"
            )
    return [_TESTS / "test_runtimes.py", *folders]


def run_tests(name: str, tests: list[Path]) -> dict[str, int]:
    """How many tests came out how. Raises ImageError when they did not all end well."""
    with tempfile.TemporaryDirectory(prefix="hvd-prove-") as folder:
        tally = Path(folder) / "tally.json"
        command = [sys.executable, "-m", "pytest", "-q", f"--prove={name}", f"--tally={tally}"]
        # Another run of the tests may have notes of its own in the usual place, of a cluster that
        # it is to stop.
        command += ["-o", f"cache_dir={folder}/cache"]
        done = subprocess.run([*command, *map(str, tests)], cwd=ROOT, check=False)
        if done.returncode != 0:
            raise ImageError(
                f"the tests of {name} ended with status {done.returncode}; its proof is as it was",
                "mend what they say and prove it once more",
            )
        counts: dict[str, int] = json.loads(tally.read_text())
    if counts["skipped"]:
        raise ImageError(f"{counts['skipped']} tests of {name} were skipped", "mend them")
    return counts


def gpu_for(engine: Engine) -> str | None:
    """The model of this machine's GPU, None where there is none. Raises ImageError when the engine
    does not pass it on.
    """
    lines = [line for file in _GPUS.glob("*/information") for line in file.read_text().splitlines()]
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if models and engine.program == "buildah":
        raise ImageError(
            f"this machine has a GPU ({models[0]}), which Buildah does not pass on",
            "use Docker or Podman with NVIDIA's container toolkit: HVD_IMAGE_ENGINE=docker",
        )
    return models[0] if models else None
