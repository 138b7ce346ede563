"""Writes the tables of docs/licences.md: the packages that `pip install hvdchart` brings, with the
licences that they declare.

`python -m devtools.docs_gen.licence_docs` writes them from requirements/ and the packages that are
installed here; with `--check` it exits with status 1 when the page differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageMetadata, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools.docs_gen.generated import replace_section, write_or_compare

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
RUNTIME = ROOT / "requirements" / "runtime.in"
START = "<!-- packages: generated from requirements/ by `make generate` -->"
END = "<!-- end of the packages -->"
# Licences by the names that packages write into the field that has no standard.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "BSD 3-Clause": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_LONGEST = 60


def declared(package: PackageMetadata) -> str:
    """The licence that a package declares, as an SPDX expression where it has one.

    Exits with a message when it declares none.
    """
    fields: list[str] = [
        *(package.get_all("License-Expression") or []),
        *(package.get_all("License") or []),
    ]
    classifiers: list[str] = package.get_all("Classifier") or []
    fields += [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    for text in fields:
        # Some packages put the whole text of their licence into the field.
        if text and text != "UNKNOWN" and "\n" not in text and len(text) <= _LONGEST:
            return _SPDX.get(text, text)
    sys.exit(f"licence_docs: {package['Name']} declares no licence: look at its files")


def needed(names: Iterable[str]) -> list[str]:
    """The packages of these names and all that they need, sorted."""
    packages: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in packages:
            continue
        packages.add(name)
        for line in requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(requirement.name))
    return sorted(packages)


def table() -> str:
    """A row for each package of the library's closure."""
    lines = [re.match(r"[\w.-]+", line) for line in RUNTIME.read_text().splitlines()]
    rows = [
        f"| {package['Name']} | {declared(package)} |"
        for package in map(metadata, needed(line[0] for line in lines if line))
    ]
    return "\n".join(["| Package | Licence |", "| --- | --- |", *rows])


def main(arguments: list[str]) -> int:
    """Writes the page, or compares it with --check."""
    return write_or_compare({PAGE: replace_section(PAGE, START, table(), END)}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
