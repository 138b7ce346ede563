"""docker-bake.hcl describes the builds that `python -m images build` makes."""

from __future__ import annotations

import json
import re

import pytest

from devtools.docs_gen.bake_file import render, target_name
from devtools.images.catalogue import ROOT, load_catalogue
from devtools.images.content import build_arguments, image_files

IMAGES = load_catalogue()


def blocks(kind: str) -> dict[str, str]:
    """The body of each block of a kind by its name."""
    matches = re.findall(rf'^{kind} "([^"]*)" {{\n(.*?)^}}', render(IMAGES), re.M | re.DOTALL)
    return dict(matches)


def pairs(body: str, key: str) -> dict[str, str]:
    """The entries of a map in a block."""
    match = re.search(rf"^  {key} = {{\n(.*?)^  }}", body, re.M | re.DOTALL)
    assert match, f"no {key}"
    entries = re.findall(r"^    (\"[^\"]*\") = (\".*\")$", match[1], re.M)
    return {json.loads(name): json.loads(value) for name, value in entries}


def test_each_image_is_a_target_with_a_name_that_bake_allows() -> None:
    targets = blocks("target")
    behind = {f"{target_name(name)}-build" for name in IMAGES if IMAGES[name].environment}
    assert set(targets) == {target_name(name) for name in IMAGES} | behind
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", name) for name in targets)


@pytest.mark.parametrize("name", IMAGES)
def test_target_has_the_arguments_of_the_build(name: str) -> None:
    image, targets = IMAGES[name], blocks("target")
    last = targets[target_name(name)]
    assert f'tags = ["${{REGISTRY}}{image.reference}"]' in last
    body = targets.get(f"{target_name(name)}-build", last)
    arguments = pairs(body, "args")
    base = arguments.pop("BASE_IMAGE")
    assert arguments == build_arguments(image)
    if image.parent:
        parents = pairs(body, "contexts")
        assert parents[base] == f"target:{target_name(image.parent)}"
    else:
        assert base == f"docker.io/library/{image.base}"


def test_variables_of_an_image_are_set_in_its_last_target() -> None:
    last = blocks("target")["cpu-2-15"]
    assert 'dockerfile-inline = "FROM parent\\nENV TF_ENABLE_ONEDNN_OPTS=1\\n"' in last
    assert pairs(last, "contexts") == {"parent": "target:cpu-2-15-build"}


@pytest.mark.parametrize("name", IMAGES)
def test_context_has_each_file_of_the_build_at_its_place(name: str) -> None:
    image = IMAGES[name]
    for place, file in image_files(image).items():
        assert (image.context / place).read_bytes() == file.read_bytes(), place


def test_usual_targets_are_those_that_every_run_tests() -> None:
    (usual,) = re.findall(r"targets = \[(.*)\]", blocks("group")["default"])
    assert usual.startswith('"cpu", "cpu-2-15", ')
    assert '"cuda"' not in usual


def test_default_registry_is_none() -> None:
    assert 'default = ""' in (ROOT / "docker-bake.hcl").read_text()
