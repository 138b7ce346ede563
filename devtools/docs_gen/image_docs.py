"""Writes the parameter tables of the images' READMEs, and the table in docs/images.md of how the
images are tested.

They are made from images/versions.yaml and the proofs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.docs_gen.generated import replace_sections
from devtools.images.catalogue import ROOT, Image, When, load_catalogue
from devtools.images.proof import read

PAGE = ROOT / "docs" / "images.md"


def parameter_tables(image: Image) -> str:
    """The parameters of an image with their values, and the combinations that are supported."""
    lines = ["| Parameter | Default | Others |", "| --- | --- | --- |"]
    for key, default in image.defaults.items():
        rows = [value for row in image.combinations for value in row.get(key, ())]
        option = image.choices.get(key)
        if option and option.several:
            lines.append(f"| `{key}` | {default} | any of {', '.join(option.words)} |")
            continue
        others = dict.fromkeys([*rows, *(option.words if option else ())])
        others.pop(default, None)
        lines.append(f"| `{key}` | {default} | {', '.join(others) or 'none'} |")
    keys = [key for key in image.defaults if len(values_in_rows(image, key)) > 1]
    if keys:
        lines += ["", "What goes together, a row each; the defaults are built and tested:", ""]
        lines += [f"| {' | '.join(keys)} |", "| --- " * len(keys) + "|"]
        for row in image.combinations:
            cells = [", ".join(row[key]) if key in row else "any" for key in keys]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def values_in_rows(image: Image, key: str) -> set[tuple[str, ...]]:
    """The sets of values that the combinations have for a parameter."""
    return {row.get(key, ()) for row in image.combinations}


def proof_table(images: Mapping[str, Image]) -> str:
    """How each image is tested, with the results from its proof. Raises ImageError for a proof that
    is missing or malformed.
    """
    lines = [
        "| Image | Tested | Tests passed | On a GPU | Unpacked |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, image in images.items():
        if image.tested is When.ALWAYS:
            lines.append(f"| `{name}` | in every run of the tests | all | | |")
            continue
        proof = read(image)
        skipped = f"; {proof.needed_gpu} tests left out" if proof.needed_gpu else ""
        lines.append(
            f"| `{name}` | separately, on {proof.day} | {proof.passed} | "
            f"{proof.gpu}{skipped} | {proof.bytes / 1e9:.2f} GB |"
        )
    return "\n".join(lines)


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
    return readmes | {PAGE: replace_sections(PAGE, {"tests": proofs})}
