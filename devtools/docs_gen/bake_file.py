"""Writes docker-bake.hcl, with which Docker alone builds the images: `docker buildx bake cpu`.

The file is generated from images/versions.yaml. `python -m images build` remains the way to build
with other versions than the defaults, without a registry, or with the wheel of an earlier build.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from devtools.images.catalogue import ROOT, Image, When, load_catalogue
from devtools.images.content import build_arguments, environment_lines

FILE = ROOT / "docker-bake.hcl"
# The name under which a build finds the image that it starts from.
_PARENT = "parent"
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_HEAD = """\
# Generated from images/versions.yaml by `make generate`: builds the images with Docker alone.
#
#   docker buildx bake examples --load
#   REGISTRY=registry.example/team/ docker buildx bake cpu --push
#
# docs/images.md describes the images.

# What is in front of each name, with the slash at its end.
variable "REGISTRY" {
  default = ""
}
"""


def render(images: Mapping[str, Image]) -> str:
    """The text of docker-bake.hcl."""
    usual = [name for name, image in images.items() if image.tested is When.ALWAYS]
    groups = {"default": usual, "all": list(images)}
    blocks = [
        *(
            _block("group", name, {"targets": [*map(target_name, names)]})
            for name, names in groups.items()
        ),
        *(_block("target", *target) for image in images.values() for target in _targets(image)),
    ]
    return "\n".join([_HEAD, *blocks])


def _targets(image: Image) -> Iterator[tuple[str, Mapping[str, object]]]:
    """An image's target by its name; behind one for all but its own variables, if it has any."""
    target = _target(image)
    if image.environment:
        behind = f"{image.name}-build"
        yield behind, {key: target[key] for key in target if key not in ("labels", "tags")}
        lines = [f"FROM {_PARENT}\n", *environment_lines(image)]
        target = {
            "contexts": {_PARENT: f"target:{behind}"},
            "dockerfile-inline": "".join(lines),
            **{key: target[key] for key in ("labels", "platforms", "tags")},
        }
    yield image.name, target


def _target(image: Image) -> dict[str, object]:
    base = _PARENT if image.parent else f"docker.io/library/{image.base}"
    title, _, version = image.reference.partition(":")
    return {
        "context": image.context.relative_to(ROOT).as_posix(),
        "dockerfile": image.dockerfile.relative_to(image.context).as_posix(),
        **({"contexts": {_PARENT: f"target:{image.parent}"}} if image.parent else {}),
        "args": {"BASE_IMAGE": base, **build_arguments(image)},
        "labels": {
            "org.opencontainers.image.title": title,
            "org.opencontainers.image.version": version,
        },
        "platforms": [_PLATFORMS[machine] for machine in image.machines],
        "tags": [f"${{REGISTRY}}{image.reference}"],
    }


def _block(kind: str, name: str, attributes: Mapping[str, object]) -> str:
    lines = [f'{kind} "{target_name(name)}" {{']
    for key, value in attributes.items():
        lines += _attribute(key, value)
    return "\n".join([*lines, "}", ""])


def target_name(image: str) -> str:
    """The name of an image's target: bake allows no dots in one."""
    return image.replace(".", "-")


def _attribute(key: str, value: object) -> list[str]:
    if isinstance(value, Mapping):
        pairs = [f"    {_word(name)} = {_word(text)}" for name, text in value.items()]
        return [f"  {key} = {{", *pairs, "  }"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [f"  {key} = [{', '.join(_word(text) for text in value)}]"]
    return [f"  {key} = {_word(value)}"]


def _word(value: object) -> str:
    text = str(value)
    if text.startswith("target:"):
        text = f"target:{target_name(text.removeprefix('target:'))}"
    # JSON's escapes are HCL's.
    return json.dumps(text)


def generated_texts() -> dict[Path, str]:
    """The text that docker-bake.hcl should have."""
    return {FILE: render(load_catalogue())}
