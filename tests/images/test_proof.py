"""Images that are tested separately, and their proofs. These need no image and no engine."""

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
from images.builder.proof import FILE, Proof, read, state, write


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


def test_proof_stays_and_ages_when_the_content_changes(images: dict[str, Image]) -> None:
    image = images["pytorch"]
    content = content_of(image, images)
    versions = {"python": "3.11", "horovod": "0.28.1"}
    proof = Proof(content, "2026-01-31", "repo:1", versions, 4_500_000_000, 27, "none", 2)
    file = write(image, proof)
    assert file == image.folder / FILE
    assert read(image) == proof
    # The proof is no part of what it proves.
    assert state(image, images) == "proved on 2026-01-31, for the present content"
    (image.folder / "slim.txt").write_text("remove y")
    assert state(image, images) == "proved on 2026-01-31, before the last change of its content"
    file.unlink()
    with pytest.raises(
        DevtoolsError, match=r"pytorch is tested separately and has no .*proof\.yaml"
    ):
        state(image, images)


def test_tests_of_separate_images_run_only_in_a_proof() -> None:
    tests = ROOT / "tests" / "images"
    images = load_catalogue()
    common = [tests / "test_runtimes.py", tests / "nvidia"]
    # Its Horovod has the same patch as that of images that are tested in every run.
    elastic = tests / "test_elastic.py"
    xla = tests / "test_xla.py"
    assert proving.tests_of(images["cuda"]) == [common[0], elastic, xla, common[1]]
    assert proving.tests_of(images["pytorch-cuda"]) == [common[0], elastic, common[1]]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", str(common[1])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "tested separately: python -m images prove cuda | pytorch-cuda" in done.stdout
    assert "passed" not in done.stdout
