"""Writes the parameter tables of the images' READMEs, the table in docs/images.md of how the images
are tested, and the list of patches in docs/packagers.md.

They are made from images/versions.yaml, the proofs and the patches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from email import message_from_string
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.docs_gen.generated import replace_sections, table
from devtools.images.catalogue import ROOT, Image, When, load_catalogue
from devtools.images.proof import read
from devtools.images.sdist import FOLDER as SOURCE
from images.common import build_horovod

PAGE = ROOT / "docs" / "images.md"
FOR_PACKAGERS = ROOT / "docs" / "packagers.md"


def parameter_tables(image: Image) -> str:
    """The parameters of an image with their values, and the combinations that are supported."""
    rows = []
    for key, default in image.defaults.items():
        found = [value for row in image.combinations for value in row.get(key, ())]
        option = image.choices.get(key)
        others = dict.fromkeys([*found, *(option.words if option else ())])
        if option and option.several:
            shown = f"any of {', '.join(option.words)}"
        else:
            shown = ", ".join(word for word in others if word != default)
        rows.append((f"`{key}`", default, shown or "none"))
    lines = [table(("Parameter", "Default", "Others"), rows)]
    keys = [key for key in image.defaults if len(values_in_rows(image, key)) > 1]
    if keys:
        lines += ["", "What goes together, a row each; the defaults are built and tested:", ""]
        cells = [[", ".join(row.get(key, ["any"])) for key in keys] for row in image.combinations]
        lines.append(table(keys, cells))
    return "\n".join(lines)


def values_in_rows(image: Image, key: str) -> set[tuple[str, ...]]:
    """The sets of values that the combinations have for a parameter."""
    return {row.get(key, ()) for row in image.combinations}


def proof_table(images: Mapping[str, Image]) -> str:
    """How each image is tested, with the results from its proof. Raises ImageError for a proof that
    is missing or malformed.
    """
    rows = []
    for name, image in images.items():
        if image.tested is When.ALWAYS:
            rows.append((f"`{name}`", "in every run of the tests", "all", "", ""))
            continue
        proof = read(image)
        skipped = f"; {proof.needed_gpu} tests left out" if proof.needed_gpu else ""
        tested, size = f"separately, on {proof.day}", f"{proof.bytes / 1e9:.2f} GB"
        rows.append((f"`{name}`", tested, str(proof.passed), f"{proof.gpu}{skipped}", size))
    return table(("Image", "Tested", "Tests passed", "On a GPU", "Unpacked"), rows)


def patch_table(images: Mapping[str, Image]) -> str:
    """Each patch with the subject of its mail and what has it, in the order of the images."""
    users: dict[Path, list[str]] = {}
    for image in images.values():
        for patch in build_horovod.patches(image.folder):
            users.setdefault(patch, []).append(f"`{image.name}`")
    for patch in build_horovod.patches(SOURCE):
        users.setdefault(patch, []).append("source")
    rows = [
        (
            f"[`{patch.stem}`](../images/patches/{patch.name})",
            message_from_string(patch.read_text())["Subject"].removeprefix("[PATCH] "),
            ", ".join(names),
        )
        for patch, names in users.items()
    ]
    return table(("Patch", "What it does", "In"), rows)


def generated_texts() -> dict[Path, str]:
    """The text that each page with tables should have. Exits with a message when a proof is missing
    or malformed.
    """
    images = load_catalogue()
    readmes = {
        (file := image.folder / "README.md"): replace_sections(
            file, {"parameters": parameter_tables(image)}
        )
        for image in images.values()
        if image.framework
    }
    try:
        proofs = proof_table(images)
    except ImageError as error:
        sys.exit(f"image_docs: {error}")
    pages = {PAGE: {"tests": proofs}, FOR_PACKAGERS: {"patches": patch_table(images)}}
    return readmes | {page: replace_sections(page, sections) for page, sections in pages.items()}
