"""Write the files that follow from images/versions.yaml, the test results and the patches: the
parameter tables of the images' READMEs, the table in images/README.md of how they are tested, the
list of patches in docs/runtime.md, and docker-bake.json.

With docker-bake.json, Docker alone builds the images: `docker buildx bake cpu`. Use `python -m
images build` to build with other versions than the defaults, without a registry, or with the wheel
of an earlier build.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from email import message_from_string
from pathlib import Path
from typing import Any

from devtools.common.repository import DOCS, ROOT
from devtools.docs_gen.generated import markdown_table, replace_sections
from images.builder.catalogue import Image, When, load_catalogue
from images.builder.content import build_arguments, environment_lines
from images.builder.sdist import PATCHES
from images.builder.separate_tests import read_results
from images.common import build_horovod

PAGE = ROOT / "images" / "README.md"
RUNTIME = DOCS / "runtime.md"
BAKE_FILE = ROOT / "docker-bake.json"
# The name of the base image in a build by Docker alone.
_PARENT = "parent"
_PLATFORM = "linux/amd64"


def parameter_tables(image: Image) -> str:
    """Return the parameters of an image with their values, and the supported combinations."""
    rows = []
    for key, default in image.defaults.items():
        if option := image.choices.get(key):
            shown = f"any of {', '.join(option.words)}"
        else:
            values = (value for row in image.combinations for value in row.get(key, ()))
            shown = ", ".join(value for value in dict.fromkeys(values) if value != default)
        rows.append((f"`{key}`", default, shown or "none"))
    lines = [markdown_table(("Parameter", "Default", "Others"), rows)]
    # The parameters that have several values in the rows.
    keys = [key for key in image.defaults if len({row.get(key) for row in image.combinations}) > 1]
    if keys:
        lines += ["", "What goes together, a row each; the defaults are built and tested:", ""]
        cells = [[", ".join(row.get(key, ["any"])) for key in keys] for row in image.combinations]
        lines.append(markdown_table(keys, cells))
    return "\n".join(lines)


def results_table(images: Mapping[str, Image]) -> str:
    """Return how each image is tested, with the results.

    Raises DevtoolsError if an image that is tested separately has none.
    """
    rows = []
    for name, image in images.items():
        if image.tested is When.ALWAYS:
            rows.append((f"`{name}`", "in every run of the tests", "all", "", ""))
            continue
        results = read_results(image)
        skipped = f"; {results.needed_gpu} tests left out" if results.needed_gpu else ""
        tested = f"separately, on {results.day}"
        size = f"{results.bytes / 1e9:.2f} GB"
        rows.append((f"`{name}`", tested, str(results.passed), f"{results.gpu}{skipped}", size))
    return markdown_table(("Image", "Tested", "Tests passed", "On a GPU", "Unpacked"), rows)


def patch_table(images: Mapping[str, Image]) -> str:
    """Return each patch with the subject of its mail and the images that have it, in the order of
    the images.
    """
    users: dict[Path, list[str]] = {}
    for image in images.values():
        for patch in build_horovod.patches(image.folder):
            users.setdefault(patch, []).append(f"`{image.name}`")
    for patch in build_horovod.patches(PATCHES):
        users.setdefault(patch, []).append("source")
    of_all = sum(bool(image.framework) for image in images.values()) + 1
    rows = [
        (
            f"[`{patch.stem}`](../images/patches/{patch.name})",
            message_from_string(patch.read_text())["Subject"].removeprefix("[PATCH] "),
            "all" if len(names) == of_all else ", ".join(names),
        )
        for patch, names in users.items()
    ]
    return markdown_table(("Patch", "What it does", "In"), rows)


def bake_file(images: Mapping[str, Image]) -> str:
    """Return the text of docker-bake.json. Each name begins with REGISTRY and its slash."""
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
    """Yield an image's target by its name.

    If the image has variables of its own, another target precedes it, with everything except these.
    """
    target = _target(image)
    name = target_name(image.name)
    if image.environment:
        yield f"{name}-build", {key: target[key] for key in target if key not in ("labels", "tags")}
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
        "platforms": [_PLATFORM],
        "tags": [f"${{REGISTRY}}{image.reference}"],
    }


def target_name(image: str) -> str:
    """Return the name of an image's target: bake allows no dots in one."""
    return image.replace(".", "-")


def generated_texts() -> dict[Path, str]:
    """Return the text of each page with tables, and docker-bake.json."""
    images = load_catalogue()
    readmes = {
        (file := image.folder / "README.md"): replace_sections(
            file, {"parameters": parameter_tables(image)}
        )
        for image in images.values()
        if image.framework
    }
    pages = {PAGE: {"tests": results_table(images)}, RUNTIME: {"patches": patch_table(images)}}
    texts = {page: replace_sections(page, sections) for page, sections in pages.items()}
    return {**readmes, **texts, BAKE_FILE: bake_file(images)}
