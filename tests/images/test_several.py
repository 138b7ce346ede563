"""Options that take several words. These need no image and no engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.common.errors import ImageError
from devtools.images.catalogue import Image, load_catalogue
from devtools.images.content import build_arguments, wheel_key
from devtools.images.lock import fill_in_parameters

FILE = """
bases: {sid: debian:sid}
images:
  one:
    reference: repo:${python}
    framework: tensorflow
    features: [mpi, nccl]
    versions: {suite: sid, horovod: "1", python: "3.11", a-cu12: "2.0"}
    options:
      capabilities: {some of: ["50", "70", "80", "90"], default: ["70", "80"]}
"""


def load(tmp_path: Path, text: str = FILE, **overrides: str) -> Image:
    file = tmp_path / "versions.yaml"
    file.write_text(text)
    return load_catalogue(overrides, file, tmp_path)["one"]


def test_option_can_take_several_words(tmp_path: Path) -> None:
    image = load(tmp_path)
    assert image.options == {"capabilities": "70,80"}
    assert image.reference == "repo:3.11"
    assert build_arguments(image)["CAPABILITIES"] == "70,80"
    # Their order does not matter.
    for asked in ("90,50", "50,90", "90,50,90"):
        other = load(tmp_path, capabilities=asked)
        assert other.options == {"capabilities": "50,90"}
        # A tag cannot have commas.
        assert other.reference == "repo:3.11-capabilities-50-90"
    assert load(tmp_path, capabilities="80,70").reference == "repo:3.11"


@pytest.mark.parametrize("asked", ["", "50,", "50;90", "50 90", "9.0", "75", "50,75", "all"])
def test_unknown_words_are_refused_with_the_choices(tmp_path: Path, asked: str) -> None:
    message = f"--set capabilities={asked}: "
    with pytest.raises(ImageError, match=re.escape(message)) as error:
        load(tmp_path, capabilities=asked)
    assert "use some, separated by commas, of 50, 70, 80, 90" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'default: ["70", "80"]',
            'default: ["75"]',
            "capabilities.default=75: '75' is not a choice",
        ),
        ('default: ["70", "80"]', "default: []", "capabilities.default is empty"),
        ('default: ["70", "80"]', "", "options.capabilities has the keys some of"),
        ("some of", "any of", "options.capabilities has the keys any of, default"),
        ('["50", ', "[50, ", "some of is 50, expected a word"),
    ],
)
def test_malformed_option_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(ImageError, match=re.escape(message)):
        load(tmp_path, FILE.replace(old, new))


def test_only_images_with_nccl_request_driver_capabilities(tmp_path: Path) -> None:
    assert build_arguments(load(tmp_path))["DRIVER_CAPABILITIES"] == "compute,utility"
    without = load(tmp_path, FILE.replace("[mpi, nccl]", "[mpi]"))
    assert build_arguments(without)["DRIVER_CAPABILITIES"] == ""


def test_images_without_nccl_name_what_workers_import(tmp_path: Path) -> None:
    image = load(tmp_path)
    assert build_arguments(image)["MODULES"] == ""
    without = load(tmp_path, FILE.replace("[mpi, nccl]", "[mpi]"))
    modules = f"{image.framework} horovod.{image.framework}"
    assert build_arguments(without)["MODULES"] == modules


def test_images_of_tensorflow_without_nccl_turn_onednn_on() -> None:
    environments = {image.name: image.environment for image in load_catalogue().values()}
    assert {name: env for name, env in environments.items() if env} == {
        "cpu": ("TF_ENABLE_ONEDNN_OPTS=1",),
        "cpu-2.15": ("TF_ENABLE_ONEDNN_OPTS=1",),
    }


def test_parameter_name_may_have_digits(tmp_path: Path) -> None:
    source = tmp_path / "a.in"
    source.write_text("a-cu12==${a-cu12}\n")
    assert fill_in_parameters(source, load(tmp_path).parameters) == "a-cu12==2.0\n"


def test_wheel_key_changes_with_the_words_and_the_toolkit(tmp_path: Path) -> None:
    for name in ("common/build_horovod.py", "common/horovod.txt", "one/toolchain.py"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_text(name)
    keys = [wheel_key(load(tmp_path)), wheel_key(load(tmp_path, capabilities="90"))]
    # As after a change of the default in versions.yaml.
    keys.append(wheel_key(load(tmp_path, FILE.replace('default: ["70", "80"]', 'default: ["50"]'))))
    for name in ("toolkit.txt", "toolkit.debs", "toolchain.py"):
        (tmp_path / "images" / "one" / name).write_text("other")
        keys.append(wheel_key(load(tmp_path)))
    assert len(set(keys)) == 6
