"""versions.yaml, locks, keys and steps of builds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from images.builder.catalogue import Image, load_catalogue
from images.builder.content import build_arguments, compiled_in, image_files, image_key, wheel_key
from images.builder.requirements_lock import fill_in_parameters, lock_file, stale_locks
from images.common import build_horovod


def catalogue(tmp_path: Path, text: str, **overrides: str) -> dict[str, Image]:
    file = tmp_path / "versions.yaml"
    file.write_text(text)
    return load_catalogue(overrides, file, tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Image:
    """An image of one folder."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM x")
    return catalogue(tmp_path, USUAL + SMALL.replace("two", "one"))["small"]


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """A versions file in which `small` is made from `two`, and `one` is of no relation."""
    file = tmp_path / "versions.yaml"
    file.write_text(USUAL + USUAL.partition("images:\n")[2].replace("one:", "two:", 1) + SMALL)
    return file


@pytest.fixture
def patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """An image whose series names the patch a.patch."""
    patches = tmp_path / "images" / "patches"
    patches.mkdir(parents=True)
    (patches / "a.patch").write_text("1")
    monkeypatch.setattr(build_horovod, "PATCHES", patches)
    image = usual(tmp_path)
    (image.folder / "series").write_text("a.patch  # why")
    return image


@pytest.mark.parametrize("name", [name for name, image in load_catalogue().items() if image.locks])
def test_locks_in_the_tree_pin_the_versions_of_the_versions_file(name: str) -> None:
    image = load_catalogue()[name]
    assert stale_locks(image) == []
    assert any("==" in fill_in_parameters(source, image.parameters) for source in image.locks)
    # As after a change of versions.yaml without `images lock`.
    changed = {key: f"{version}.99" for key, version in image.versions.items()}
    changed["python"] = image.versions["python"]
    edited = dataclasses.replace(
        image, versions=changed, defaults={**image.parameters, **changed, **image.options}
    )
    assert stale_locks(edited) != []


def with_other(name: str, **other: str) -> Image:
    """An image with another value of a parameter, whose name has hyphens for underscores."""
    wanted = {key.replace("_", "-"): value for key, value in other.items()}
    return load_catalogue(wanted, target=name)[name]


def test_usual_parameters_have_their_lock_beside_the_requirements() -> None:
    requirements, *_ = load_catalogue()["cuda"].locks
    lock = requirements.with_suffix(".txt")
    assert lock_file(load_catalogue()["cuda"], requirements) == lock
    # An option that no package depends on has the same lock.
    assert lock_file(with_other("cuda", compute_capabilities="80"), requirements) == lock


def test_other_parameters_have_locks_in_the_cache() -> None:
    other = with_other("cpu", tensorflow="2.19.1")
    requirements, horovod, *_ = other.locks
    assert ROOT not in lock_file(other, requirements).parents
    # What builds Horovod does not depend on them.
    assert ROOT / "images" / "common" in lock_file(other, horovod).parents


@pytest.mark.parametrize("other", [{"tensorflow": "2.19.1"}, {"python": "3.12"}])
def test_missing_lock_is_not_stale(other: dict[str, str]) -> None:
    """The build writes it."""
    assert stale_locks(with_other("cpu", **other)) == []


def test_each_value_has_a_lock_of_its_own() -> None:
    others = ({"tensorflow": "2.19.1"}, {"python": "3.12"})
    images = [load_catalogue()["cpu"], *(with_other("cpu", **other) for other in others)]
    assert len({lock_file(image, next(iter(image.locks))) for image in images}) == 3


def test_image_key_changes_with_a_file_and_the_base_and_not_with_notes(
    small: Image, tmp_path: Path
) -> None:
    before = image_key(small, "base")
    (tmp_path / "small" / "README.md").write_text("notes")
    assert image_key(small, "base") == before
    assert image_key(small, "other base") != before
    (tmp_path / "small" / "step.py").write_text("pass")
    assert image_key(small, "base") != before


@pytest.mark.parametrize("change", [{"versions": {"python": "3.12"}}, {"environment": ("A=1",)}])
def test_image_key_changes_with_versions_and_environment(
    small: Image, change: dict[str, Any]
) -> None:
    assert image_key(dataclasses.replace(small, **change), "base") != image_key(small, "base")


def test_override_applies_to_the_target_and_its_ancestors(family: Path) -> None:
    images = load_catalogue({"python": "3.9"}, family, family.parent, target="small")
    assert {name: image.versions["python"] for name, image in images.items()} == {
        "one": "3.11",
        "two": "3.9",
        "small": "3.9",
    }


def test_untested_version_is_refused_unless_it_is_asked_for(family: Path) -> None:
    python = {"python": "3.12"}
    with pytest.raises(DevtoolsError, match="is not among the combinations"):
        load_catalogue(python, family, family.parent, target="two")
    new = load_catalogue(python, family, family.parent, target="two", allows_untested=True)
    assert new["two"].versions["python"] == "3.12"


def test_untested_version_goes_with_the_row_of_the_others(family: Path) -> None:
    asked = {"horovod": "9", "python": "3.8"}
    two = load_catalogue(asked, family, family.parent, target="two", allows_untested=True)["two"]
    assert two.versions["horovod"] == "9"
    assert two.suite == "bullseye"


def test_unknown_parameter_is_refused(family: Path) -> None:
    with pytest.raises(DevtoolsError, match="small "):
        load_catalogue({"pythn": "3.9"}, family, family.parent, target="small")


SMALL = """
  small:
    reference: small:1
    from: two
    context: small
    contents: [small]
    dockerfile: small/Dockerfile
    versions: {}
"""
USUAL = """
versions: {horovod: "0.28.1"}
bases: {bookworm: debian:bookworm, bullseye: ubuntu:bullseye}
images:
  one:
    reference: repo:${horovod}
    framework: tensorflow
    features: [mpi]
    packages: [python3]
    versions:
    - {suite: bookworm, python: "3.11"}
    - {suite: bullseye, python: ["3.9", "3.8"]}
    options:
      gpus: {some of: ["50", "70", "80", "90"], default: ["70", "80"]}
"""


def usual(tmp_path: Path) -> Image:
    """An image with the usual layout and its files."""
    common = ("build_horovod.py", "horovod.in", "horovod.txt", "wheel.in")
    for name in (*(f"common/{name}" for name in common), "one/slim.txt", "one/requirements.in"):
        file = tmp_path / "images" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return catalogue(tmp_path, USUAL)["one"]


def test_override_of_an_option_changes_nothing_but_the_tag(tmp_path: Path) -> None:
    image = catalogue(tmp_path, USUAL, gpus="80")["one"]
    assert image.reference == "repo:0.28.1-gpus-80"
    assert image.parameters == usual(tmp_path).parameters | {"gpus": "80"}


def test_override_selects_the_row_that_has_it(tmp_path: Path) -> None:
    older = catalogue(tmp_path, USUAL, python="3.9")["one"]
    assert older.reference == "repo:0.28.1-python-3.9"
    assert older.suite == "bullseye"
    assert older.base == "ubuntu:bullseye"
    assert catalogue(tmp_path, USUAL)["one"].base == "debian:bookworm"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"python": "3.12"}, "suite bullseye; python 3.9 or 3.8"),
        # An override counts even when it is the default.
        ({"python": "3.9", "suite": "bookworm"}, "python=3.9, suite=bookworm"),
        ({"horovod": "0.27.0"}, "horovod 0.28.1; suite bookworm; python 3.11"),
        ({"gpus": "50;90"}, "50, 70, 80, 90"),
        ({"gpus": "50,"}, "''"),
    ],
)
def test_versions_in_no_row_are_refused_with_the_rows(
    tmp_path: Path, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(DevtoolsError, match=re.escape(message)):
        catalogue(tmp_path, USUAL, **overrides)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("from: two", "from: three", "small.from is 'three'"),
        ("from: two", "from: small", "small: `from`"),
        ("suite: bookworm", "suite: sid", "suite 'sid' has no base"),
    ],
)
def test_image_that_builds_on_none_is_refused(
    family: Path, old: str, new: str, message: str
) -> None:
    family.write_text(family.read_text().replace(old, new))
    with pytest.raises(DevtoolsError, match=re.escape(message)):
        load_catalogue(None, family, family.parent, target="small")


def test_option_can_take_several_words(tmp_path: Path) -> None:
    image = catalogue(tmp_path, USUAL)["one"]
    assert build_arguments(image)["GPUS"] == "70,80"


@pytest.mark.parametrize("asked", ["90,50", "50,90", "90,50,90"])
def test_order_of_an_options_words_does_not_matter(tmp_path: Path, asked: str) -> None:
    other = catalogue(tmp_path, USUAL, gpus=asked)["one"]
    assert other.options["gpus"] == "50,90"
    # A tag cannot have commas.
    assert other.reference == "repo:0.28.1-gpus-50-90"


def test_default_words_in_another_order_are_the_default(tmp_path: Path) -> None:
    assert catalogue(tmp_path, USUAL, gpus="80,70")["one"].reference == "repo:0.28.1"


@pytest.mark.parametrize("name", ["one/slim.txt", "patches/unnamed.patch"])
def test_wheel_key_does_not_depend_on_what_is_not_in_the_wheel(patched: Image, name: str) -> None:
    before = wheel_key(patched)
    (patched.folder.parent / name).write_text("other")
    assert wheel_key(patched) == before


@pytest.mark.parametrize(
    "name",
    [
        "patches/a.patch",
        "one/toolchain.py",
        "one/toolkit.txt",
        "one/toolkit.debs",
        "common/horovod.txt",
    ],
)
def test_wheel_key_changes_with_a_file_of_the_wheel(patched: Image, name: str) -> None:
    before = wheel_key(patched)
    (patched.folder.parent / name).write_text("other")
    assert wheel_key(patched) != before


def test_wheel_key_changes_with_the_series_the_features_and_the_options(patched: Image) -> None:
    keys = [
        wheel_key(patched),
        wheel_key(dataclasses.replace(patched, features=("mpi", "gloo"))),
        wheel_key(dataclasses.replace(patched, options={"gpus": "80"})),
    ]
    (patched.folder / "series").write_text("# none")
    assert wheel_key(patched) not in keys
    assert len(set(keys)) == 3


def test_patches_of_the_series_are_files_of_the_image(patched: Image) -> None:
    assert "patches/a.patch" in image_files(patched)


def test_patch_that_is_missing_is_named(patched: Image) -> None:
    (patched.folder / "series").write_text("b.patch")
    with pytest.raises(SystemExit, match=r"b\.patch"):
        wheel_key(patched)


def test_portable_wheel_is_compiled_once_for_every_python() -> None:
    def image(**chosen: str) -> Image:
        return load_catalogue(chosen, target="cpu")["cpu"]

    images = [image(python=python) for python in ("3.11", "3.12", "3.13")]
    assert len({wheel_key(image) for image in images}) == 1
    # In the release with the oldest C library.
    assert {compiled_in(image)["suite"] for image in images} == {"bookworm"}
    older = image(tensorflow="2.19.1")
    assert wheel_key(older) != wheel_key(images[0])
    assert compiled_in(older)["tensorflow"] == "2.19.1"
