"""Images that are tested separately, and the results of their tests."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from images.builder import separate_tests
from images.builder.catalogue import Image, When, load_catalogue
from images.builder.content import content_of
from images.builder.separate_tests import Results, describe_tests, read_results, write_results


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
def results(images: dict[str, Image]) -> Results:
    """Results for the present content, which are written."""
    content = content_of(images["pytorch"], images)
    versions = {"python": "3.11", "horovod": "0.28.1"}
    results = Results(content, "2026-01-31", "repo:1", versions, 4_500_000_000, 27, "none", 2)
    write_results(images["pytorch"], results)
    return results


def test_results_are_read_as_they_were_written(images: dict[str, Image], results: Results) -> None:
    assert read_results(images["pytorch"]) == results


def test_results_are_no_part_of_the_tested_content(
    images: dict[str, Image], results: Results
) -> None:
    described = describe_tests(images["pytorch"], images)
    assert str(results.day) in described
    assert "present" in described


@pytest.mark.usefixtures("results")
def test_results_are_outdated_when_the_content_changes(images: dict[str, Image]) -> None:
    (images["pytorch"].folder / "slim.txt").write_text("remove y")
    state = describe_tests(images["pytorch"], images)
    assert "present" not in state


def test_missing_results_are_an_error(images: dict[str, Image]) -> None:
    with pytest.raises(DevtoolsError, match=r"pytorch .*test-results\.yaml"):
        describe_tests(images["pytorch"], images)


# Its Horovod has a patch of images that are tested in every run, or another one.
@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("cuda", ["test_runtimes.py", "test_elastic.py", "test_xla.py", "nvidia"]),
        ("pytorch-cuda", ["test_runtimes.py", "test_elastic.py", "nvidia"]),
    ],
)
def test_image_is_tested_by_the_tests_of_its_patches(name: str, tests: list[str]) -> None:
    folder = ROOT / "tests" / "images"
    assert separate_tests.tests_of(load_catalogue()[name]) == [folder / test for test in tests]


def test_tests_of_separate_images_run_only_for_a_chosen_image() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", str(separate_tests.SEPARATE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "python -m images test cuda | pytorch-cuda" in done.stdout
    assert "passed" not in done.stdout
