"""Images that are tested separately, and their proofs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.common.errors import DevtoolsError
from images.builder import proof as proving
from images.builder.catalogue import ROOT, Image, When, load_catalogue
from images.builder.content import content_of
from images.builder.proof import Proof, read, state, write


@pytest.fixture
def images(tmp_path: Path) -> dict[str, Image]:
    """One separately tested image, with all its files below tmp_path."""
    whole = load_catalogue()["pytorch"]
    folder = tmp_path / whole.name
    folder.mkdir()
    (folder / "slim.txt").write_text("remove x")
    apart = dataclasses.replace(
        whole,
        context=tmp_path,
        contents=(folder,),
        locks={},
        framework=None,
        tested=When.SEPARATELY,
    )
    return {whole.name: apart}


@pytest.fixture
def proof(images: dict[str, Image]) -> Proof:
    """A proof of the present content, which is written."""
    content = content_of(images["pytorch"], images)
    versions = {"python": "3.11", "horovod": "0.28.1"}
    proof = Proof(content, "2026-01-31", "repo:1", versions, 4_500_000_000, 27, "none", 2)
    write(images["pytorch"], proof)
    return proof


def test_proof_is_read_as_it_was_written(images: dict[str, Image], proof: Proof) -> None:
    assert read(images["pytorch"]) == proof


def test_proof_is_no_part_of_what_it_proves(images: dict[str, Image], proof: Proof) -> None:
    assert state(images["pytorch"], images) == f"proved on {proof.day}, for the present content"


@pytest.mark.usefixtures("proof")
def test_proof_ages_when_the_content_changes(images: dict[str, Image]) -> None:
    (images["pytorch"].folder / "slim.txt").write_text("remove y")
    assert state(images["pytorch"], images).endswith(", before the last change of its content")


def test_missing_proof_is_an_error(images: dict[str, Image]) -> None:
    with pytest.raises(
        DevtoolsError, match=r"pytorch is tested separately and has no .*proof\.yaml"
    ):
        state(images["pytorch"], images)


# Its Horovod has a patch of images that are tested in every run, or another one.
@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("cuda", ["test_runtimes.py", "test_elastic.py", "test_xla.py", "nvidia"]),
        ("pytorch-cuda", ["test_runtimes.py", "test_elastic.py", "nvidia"]),
    ],
)
def test_image_is_proved_by_the_tests_of_its_patches(name: str, tests: list[str]) -> None:
    folder = ROOT / "tests" / "images"
    assert proving.tests_of(load_catalogue()[name]) == [folder / test for test in tests]


def test_tests_of_separate_images_run_only_in_a_proof() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", str(proving.SEPARATE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "tested separately: python -m images prove cuda | pytorch-cuda" in done.stdout
    assert "passed" not in done.stdout
