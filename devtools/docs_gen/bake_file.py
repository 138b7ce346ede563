"""Writes docker-bake.json, with which Docker alone builds the images: `docker buildx bake cpu`.

The file is generated from images/versions.yaml. `python -m images build` remains the way to build
with other versions than the defaults, without a registry, or with the wheel of an earlier build.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from devtools.images.catalogue import ROOT, Image, When, load_catalogue
from devtools.images.content import build_arguments, environment_lines

FILE = ROOT / "docker-bake.json"
# The name under which a build finds the image that it starts from.
_PARENT = "parent"
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


def render(images: Mapping[str, Image]) -> str:
    """The text of docker-bake.json. REGISTRY is what is in front of each name, with the slash at
    its end.
    """
    groups = {
        "default": [name for name, image in images.items() if image.tested is When.ALWAYS],
        "all": list(images),
    }
    document = {
        "variable": {"REGISTRY": {"default": ""}},
        "group": {name: {"targets": [*map(target_name, names)]} for name, names in groups.items()},
        "target": dict(target for image in images.values() for target in _targets(image)),
    }
    return json.dumps(document, indent=2) + "\n"


def _targets(image: Image) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """An image's target by its name; behind one for all but its own variables, if it has any."""
    target, name = _target(image), target_name(image.name)
    if image.environment:
        yield f"{name}-build", {k: target[k] for k in target if k not in ("labels", "tags")}
        lines = [f"FROM {_PARENT}\n", *environment_lines(image)]
        target = {
            "contexts": {_PARENT: f"target:{name}-build"},
            "dockerfile-inline": "".join(lines),
            **{key: target[key] for key in ("labels", "platforms", "tags")},
        }
    yield name, target


def _target(image: Image) -> dict[str, Any]:
    parent = {_PARENT: f"target:{target_name(image.parent)}"} if image.parent else {}
    base = _PARENT if image.parent else f"docker.io/library/{image.base}"
    title, _, version = image.reference.partition(":")
    return {
        "context": image.context.relative_to(ROOT).as_posix(),
        "dockerfile": image.dockerfile.relative_to(image.context).as_posix(),
        **({"contexts": parent} if parent else {}),
        "args": {"BASE_IMAGE": base, **build_arguments(image)},
        "labels": {
            "org.opencontainers.image.title": title,
            "org.opencontainers.image.version": version,
        },
        "platforms": [_PLATFORMS[machine] for machine in image.machines],
        "tags": [f"${{REGISTRY}}{image.reference}"],
    }


def target_name(image: str) -> str:
    """The name of an image's target: bake allows no dots in one."""
    return image.replace(".", "-")


def generated_texts() -> dict[Path, str]:
    """The text that docker-bake.json should have."""
    return {FILE: render(load_catalogue())}
