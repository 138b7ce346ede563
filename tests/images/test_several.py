"""Options of which several words may be chosen. These need no image and no engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.common.errors import ImageError
from devtools.images.catalogue import Image, load_catalogue
from devtools.images.content import build_arguments, wheel_key
from devtools.images.lock import filled_in

FILE = """
images:
  one:
    reference: repo:${python}
    base: debian:x
    framework: tensorflow
    features: [mpi, nccl]
    versions: {horovod: "1", python: "3.11", a-cu12: "2.0"}
    options:
      capabilities: {some of: ["50", "70", "80", "90"], default: ["70", "80"]}
"""


def load(tmp_path: Path, text: str = FILE, **overrides: str) -> Image:
    file = tmp_path / "versions.yaml"
    file.write_text(text)
    return load_catalogue(overrides, file, tmp_path)["one"]


def test_several_words_are_one_parameter(tmp_path: Path) -> None:
    image = load(tmp_path)
    assert image.options == {"capabilities": "70,80"}
    assert image.reference == "repo:3.11"
    assert build_arguments(image)["CAPABILITIES"] == "70,80"
    # In what order they are asked for makes no other image.
    for asked in ("90,50", "50,90", "90,50,90"):
        other = load(tmp_path, capabilities=asked)
        assert other.options == {"capabilities": "50,90"}
        # A tag takes no commas.
        assert other.reference == "repo:3.11-capabilities-50-90"
    assert load(tmp_path, capabilities="80,70").reference == "repo:3.11"


@pytest.mark.parametrize("asked", ["", "50,", "50;90", "50 90", "9.0", "75", "50,75", "all"])
def test_what_is_not_among_them_is_refused_with_what_is(tmp_path: Path, asked: str) -> None:
    message = f"--set capabilities={asked}: no such choice"
    with pytest.raises(ImageError, match=re.escape(message)) as error:
        load(tmp_path, capabilities=asked)
    assert "use some, with commas between, of 50, 70, 80, 90" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('default: ["70", "80"]', 'default: ["75"]', "capabilities.default=75: no such choice"),
        ('default: ["70", "80"]', "default: []", "capabilities.default is empty"),
        ('default: ["70", "80"]', "", "options.capabilities has some of"),
        ("some of", "any of", "options.capabilities has any of, default"),
        ('["50", ', "[50, ", "some of has 50, expected a word"),
    ],
)
def test_a_wrong_list_in_the_file_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in FILE
    with pytest.raises(ImageError, match=re.escape(message)):
        load(tmp_path, FILE.replace(old, new))


def test_only_an_image_with_nccl_asks_for_the_driver(tmp_path: Path) -> None:
    assert build_arguments(load(tmp_path))["DRIVER_CAPABILITIES"] == "compute,utility"
    without = load(tmp_path, FILE.replace("[mpi, nccl]", "[mpi]"))
    assert build_arguments(without)["DRIVER_CAPABILITIES"] == ""


def test_a_packages_name_may_hold_digits(tmp_path: Path) -> None:
    source = tmp_path / "a.in"
    source.write_text("a-cu12==${a-cu12}\n")
    assert filled_in(source, load(tmp_path).parameters) == "a-cu12==2.0\n"


def test_horovod_is_compiled_again_for_other_words_and_another_toolkit(tmp_path: Path) -> None:
    for name in ("common/build_horovod.py", "common/horovod.txt", "one/toolchain.py"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_text(name)
    keys = [wheel_key(load(tmp_path)), wheel_key(load(tmp_path, capabilities="90"))]
    # As when somebody changes the default in the file.
    keys.append(wheel_key(load(tmp_path, FILE.replace('default: ["70", "80"]', 'default: ["50"]'))))
    for name in ("toolkit.txt", "toolkit.debs", "toolchain.py"):
        (tmp_path / "images" / "one" / name).write_text("other")
        keys.append(wheel_key(load(tmp_path)))
    assert len(set(keys)) == 6
