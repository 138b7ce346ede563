"""Write the tables of what `python -m images build NAME --set` takes into the images' READMEs, and
the table of how the images are tested into docs/images.md.

`python -m devtools.docs_gen.image_docs` writes them from images/versions.yaml and the proofs,
`--check` exits 1 and names each file that differs, and each proof that is missing or malformed. A
proof that was made before the last change of its image's content is no reason to exit 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from devtools.common.errors import ImageError
from devtools.images.catalogue import ROOT, Image, When, load_catalogue
from devtools.images.proof import AGED, PRESENT, proved_for, read

START = "<!-- parameters: generated from images/versions.yaml by `make generate` -->"
END = "<!-- end of the parameters -->"
PAGE = ROOT / "docs" / "images.md"
PROOFS = (
    "<!-- tests: generated from images/versions.yaml and images/*/proof.yaml by `make generate` -->"
)
END_OF_PROOFS = "<!-- end of the tests -->"


def tables(image: Image) -> str:
    """What can be chosen, and what goes together."""
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
    keys = [key for key in image.defaults if len(values_of(image, key)) > 1]
    if keys:
        lines += ["", "What goes together, a row each; the defaults are built and tested:", ""]
        lines += [f"| {' | '.join(keys)} |", "| --- " * len(keys) + "|"]
        for row in image.combinations:
            cells = [", ".join(row[key]) if key in row else "any" for key in keys]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def values_of(image: Image, key: str) -> set[tuple[str, ...]]:
    """What the rows say of a parameter."""
    return {row.get(key, ()) for row in image.combinations}


def proofs(images: Mapping[str, Image]) -> str:
    """How each image is tested, and what the proofs say of those that are tested apart. Raises
    ImageError for a proof that is missing or is none.
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
        when = proved_for(proof, image, images)
        left = f"; {proof.needed_gpu} tests left out" if proof.needed_gpu else ""
        lines.append(
            f"| `{name}` | apart, on {proof.day}, {when} | {proof.passed} | {proof.gpu}{left} | "
            f"{proof.bytes / 1e9:.2f} GB |"
        )
    return "\n".join(lines)


def filled(file: Path, start: str, text: str, end: str) -> str:
    """A page with what is between two marker lines written anew; the rest is written by hand."""
    before, found, rest = file.read_text().partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"image_docs: {file}: the marker lines {start} and {end} are missing")
    return f"{before}{start}\n{text}\n{end}{after}"


def pages() -> dict[Path, str]:
    """What each page with tables should hold."""
    images = load_catalogue()
    found = {
        (file := image.folder / "README.md"): filled(file, START, tables(image), END)
        for image in images.values()
        if image.framework
    }
    return found | {PAGE: filled(PAGE, PROOFS, proofs(images), END_OF_PROOFS)}


def settled(text: str) -> str:
    """A page's text without which proofs have aged: that changes with any file of an image."""
    return text.replace(AGED, PRESENT)


def check(differing: Mapping[Path, str]) -> int:
    """1 when a page differs in more than which proofs have aged."""
    status = 0
    for file, text in differing.items():
        if settled(file.read_text()) == settled(text):
            print(f"{file}: a proof is no longer what it says: `make generate`", file=sys.stderr)
        else:
            status = 1
            print(f"{file}: differs from its sources: run `make generate`", file=sys.stderr)
    return status


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with --check."""
    try:
        differing = {file: text for file, text in pages().items() if file.read_text() != text}
    except ImageError as error:
        sys.exit(f"image_docs: {error}")
    if arguments == ["--check"]:
        return check(differing)
    for file, text in differing.items():
        file.write_text(text)
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
