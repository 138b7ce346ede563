"""The versions that CHANGELOG.md describes, the notes of one of them, and the check of a tree
before a release: each place that names the version agrees with the tag, and no placeholder is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

import hvdchart
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT

FILE = ROOT / "CHANGELOG.md"
UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## (\d+\.\d+\.\d+\S*)(?: \(([^)]*)\))?$", re.MULTILINE)
# Files with a line that names the version, and what is before the version in that line.
VERSIONED = {
    "hvdchart/__init__.py": '__version__ = "',
    "charts/horovod/Chart.yaml": "version: ",
    "CITATION.cff": "version: ",
}
# Files that the owner of the repository fills in before the first release.
FILLED_IN = (".github/CODEOWNERS", "charts/horovod/Chart.yaml")
_PLACEHOLDER = re.compile(r"\b(?:OWNER|REPOSITORY|ADDRESS)\b")
# A link to a file of this repository.
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


@dataclass(frozen=True)
class Section:
    """The changes of a version. `day` is the day of its release, or UNRELEASED, or empty."""

    version: str
    day: str
    text: str


def sections(changelog: str) -> list[Section]:
    """Return the sections of a changelog, the newest first."""
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    return [
        Section(heading[1], heading[2] or "", changelog[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    ]


def notes(version: str, repository: str = "", file: Path = FILE) -> str:
    """Return the notes of a version. Links to files lead to `repository`, at the version's tag.

    Raises DevtoolsError when the changelog has no such version.
    """
    for section in sections(file.read_text("utf-8")):
        if section.version == version:
            target = rf"]({repository}/blob/v{version}/\1)"
            return (_LINK.sub(target, section.text) if repository else section.text) + "\n"
    raise DevtoolsError(f"{file.name} does not describe {version}", f"add a section `## {version}`")


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version that each file names."""
    yaml = YAML(typ="safe")
    return {
        "hvdchart/__init__.py": hvdchart.__version__,
        "charts/horovod/Chart.yaml": yaml.load(root / "charts/horovod/Chart.yaml")["version"],
        "CITATION.cff": yaml.load(root / "CITATION.cff")["version"],
        "CHANGELOG.md": sections((root / "CHANGELOG.md").read_text("utf-8"))[0].version,
    }


def write_version(version: str, day: str = UNRELEASED, root: Path = ROOT) -> None:
    """Write the version into each file that names it, and its day into CHANGELOG.md.

    CHANGELOG.md gets a section for a version that it does not describe.
    Raises DevtoolsError when a file has no line with a version.
    """
    for name, before in VERSIONED.items():
        line = re.compile(rf"^({re.escape(before)})[^\s\"]+", re.MULTILINE)
        text, count = line.subn(rf"\g<1>{version}", (root / name).read_text("utf-8"), count=1)
        if not count:
            raise DevtoolsError(f"{name} has no line `{before}...`", "restore the line")
        (root / name).write_text(text, "utf-8")
    log = root / "CHANGELOG.md"
    text = log.read_text("utf-8")
    heading = f"## {version} ({day})"
    newest = _HEADING.search(text)
    if newest is None:
        raise DevtoolsError(f"{log.name} describes no version", f"add a section `{heading}`")
    end = newest.end() if newest[1] == version else newest.start()
    between = "" if newest[1] == version else "\n\n"
    log.write_text(f"{text[: newest.start()]}{heading}{between}{text[end:]}", "utf-8")


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Return the problems that prevent a release of the tree as `tag`, one line each."""
    wrong = [
        f"{file} has version {version}, and the tag is {tag}: expected v{version}"
        for file, version in versions(root).items()
        if tag != f"v{version}"
    ]
    newest = sections((root / "CHANGELOG.md").read_text("utf-8"))[0]
    if newest.day == UNRELEASED:
        wrong.append(f"CHANGELOG.md calls {newest.version} {UNRELEASED}: write the day instead")
    return [*wrong, *find_unfilled(root)]


def find_unfilled(root: Path = ROOT) -> list[str]:
    """Return the files that do not name this repository yet, one line each."""
    wrong = []
    for file in FILLED_IN:
        lines = (root / file).read_text("utf-8").splitlines()
        content = [line for line in lines if line.strip() and not line.startswith("#")]
        placeholders = {word for line in content for word in _PLACEHOLDER.findall(line)}
        if placeholders:
            words = " and ".join(sorted(placeholders))
            wrong.append(f"{file} has the placeholder {words}: write the names of this repository")
    return wrong


def is_off(branch: str, root: Path = ROOT) -> bool:
    """Return whether `branch` lacks the commit that is checked out: a tag may name any commit.

    Raises DevtoolsError when there is no such branch, as in a shallow clone.
    """
    command = ["git", "-C", str(root), "rev-list", "--max-count=1", "HEAD", "--not", branch]
    remedy = f"fetch {branch} with its history"
    return bool(read_output(command, remedy=remedy).strip())
