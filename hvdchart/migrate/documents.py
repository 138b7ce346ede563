"""Reads the file to migrate: one document, or one among others; templates are recognised."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hvdchart.errors import FileError, SpecError
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, Place, parse, shorten

_DOCUMENT = re.compile(r"^---(?=\s|$)|^\.\.\.\s*$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{\{|\{%", re.DOTALL)


@dataclass(frozen=True)
class Input:
    """The document to migrate, and what the file's other documents are: ConfigMap settings."""

    root: Node
    others: tuple[str, ...] = ()


def read_input(data: bytes, file: str, is_job: Callable[[Node], bool]) -> Input:
    """The document of a file for which `is_job` is true, or its only document.

    Raises SpecError for templates, for several jobs in one file and for what is no YAML.
    """
    if len(data) > MAX_BYTES:
        parse(data, file)  # raises the error for a long file
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    _refuse_template(text, file)
    parts = _split(text)
    if not _DOCUMENT.search(text):
        return Input(parse(data, file))
    roots = [root for part in parts if (root := _parse(part, file)) is not None]
    jobs = [root for root in roots if is_job(root)]
    if len(roots) == 1:
        return Input(roots[0])
    if len(jobs) != 1:
        contents = ", ".join(describe(root) for root in roots) or "no documents with a value"
        expected = "one MPIJob or Volcano Job in a file; split the file at the lines with ---"
        raise SpecError(file, "", f"the file has {contents}", expected)
    return Input(jobs[0], tuple(describe(root) for root in roots if root is not jobs[0]))


def read_bytes(path: Path) -> tuple[bytes, str]:
    """The content of a file, or of standard input for "-", and its name in messages.

    One byte over the limit shows that a file is too long. Raises FileError.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1), str(path)
    except OSError as error:
        raise FileError(f"{path}: cannot read the file: {error.strerror}") from error


def describe(root: Node) -> str:
    """The kind and the name of a document: ConfigMap settings."""
    tree = root.plain
    if not isinstance(tree, dict):
        return root.shown
    metadata = tree.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return shorten(f"{tree.get('kind', 'a map without a kind')} {name}".strip())


def _split(text: str) -> list[str]:
    """The documents, each after as many line ends as are before it, so that places stay true."""
    parts: list[str] = []
    start = 0
    for mark in [*_DOCUMENT.finditer(text), None]:
        end = mark.start() if mark else len(text)
        part = text[start:end]
        if _COMMENT.sub("", part).strip():
            parts.append("\n" * text.count("\n", 0, start) + part)
        start = mark.end() if mark else end
    return parts


def _parse(part: str, file: str) -> Node | None:
    root = parse(part.encode(), file)
    return None if root.value is None else root


def _refuse_template(text: str, file: str) -> None:
    """Raise SpecError for a template of Helm or Jinja, which is no YAML until it is rendered."""
    match = _TEMPLATE.search(_COMMENT.sub(lambda match: " " * len(match[0]), text))
    if match is None:
        return
    before = text[: match.start()]
    place = Place(file, before.count("\n") + 1, match.start() - before.rfind("\n"))
    shown = shorten(" ".join(match[0].split()))
    if match[0].startswith("{%") or "NAUTA" in match[0]:
        problem = f"{shown} is a template of Jinja, which the tool that it belongs to renders"
        expected = "the rendered file, such as `helm get values RELEASE --all` prints for a release"
    else:
        problem = f"{shown} is a template, which Helm renders"
        expected = "the rendered manifest: helm template RELEASE CHART | hvdchart migrate -"
    raise SpecError(str(place), "", problem, expected)
