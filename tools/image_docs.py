"""Write the tables of what `python -m images build NAME --set` takes into the images' READMEs.

`python -m tools.image_docs` writes them from images/versions.yaml, `--check` exits 1 and names each
file that differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from images.catalogue import Image, load_catalogue

START = "<!-- parameters: generated from images/versions.yaml by `make generate` -->"
END = "<!-- end of the parameters -->"


def tables(image: Image) -> str:
    """What can be chosen, and what goes together."""
    lines = ["| Parameter | Default | Others |", "| --- | --- | --- |"]
    for key, default in image.defaults.items():
        rows = [value for row in image.combinations for value in row.get(key, ())]
        others = dict.fromkeys([*rows, *image.choices.get(key, ())])
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


def filled(readme: str, image: Image) -> str:
    """A README with its tables written anew; the rest of it is written by hand."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        sys.exit(f"image_docs: images/{image.name}/README.md: the tables' marker lines are missing")
    return f"{before}{START}\n{tables(image)}\n{END}{after}"


def readmes() -> dict[Path, str]:
    """What each README with tables should hold."""
    images = [image for image in load_catalogue().values() if image.framework]
    files = {image.folder / "README.md": image for image in images}
    return {file: filled(file.read_text(), image) for file, image in files.items()}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with --check."""
    differing = {file: text for file, text in readmes().items() if file.read_text() != text}
    if arguments == ["--check"]:
        for file in differing:
            print(f"{file}: differs from versions.yaml: run `make generate`", file=sys.stderr)
        return 1 if differing else 0
    for file, text in differing.items():
        file.write_text(text)
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
