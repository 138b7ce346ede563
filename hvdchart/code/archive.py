"""Packs a script or a folder into the chart's value `code`."""

from __future__ import annotations

import base64
import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from pathspec import GitIgnoreSpec

from hvdchart.chart_files import read_data
from hvdchart.errors import FileError
from hvdchart.files import read_patterns
from hvdchart.quantity import pluralize
from hvdchart.spec.yaml_tree import Plain

IGNORE_FILES = (".gitignore", ".hvdignore")
# What no training reads: version control, caches of Python and of its tools, environments.
ALWAYS_IGNORED = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.pyc",
    ".ipynb_checkpoints/",
    ".venv/",
    "venv/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
)
# The patterns of a folder's ignore file, which are relative to it.
_Rules: TypeAlias = tuple[Path, GitIgnoreSpec]
# How many files a message names.
_NAMED = 3


def pack_code(path: Path) -> dict[str, Plain]:
    """Return the chart's value `code` for a script or a folder.

    A script of text is an entry of `code.files`, and the training command unless the spec has
    another one. A folder is an archive, without the files that .gitignore and .hvdignore name. The
    same content is the same value, whenever it is packed. Raises FileError for what cannot be read
    and for code that is larger than the chart takes.
    """
    if path.is_dir():
        files = list_files(path)
        if not files:
            raise FileError(f"{path}: has no file that is not ignored")
        named = {file.relative_to(path).as_posix(): file for file in files}
        return {"archive": pack_files(path, named)}
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot read the code: {error}") from error
    _check_size(path, len(text), [path])
    return {"files": {path.name: text}}


def pack_files(origin: Path, files: Mapping[str, Path]) -> str:
    """Return a tar.gz in base64 of files by their names in it; the same files are the same text.

    Raises FileError for a file that cannot be read, and, with the name of `origin`, when they are
    more than the chart takes.
    """
    content = io.BytesIO()
    paths = list(files.values())
    # The times are left out: the same files are the same bytes.
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in files.items():
            _add(archive, file, name)
            # A data set in the folder is refused before all of it is packed.
            _check_size(origin, content.tell() * 4 // 3, paths)
    text = base64.b64encode(content.getvalue()).decode()
    _check_size(origin, len(text), paths)
    return text


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder that are not ignored, sorted.

    Raises FileError for a folder that cannot be read, a pattern that is none, and for what is
    neither a file nor a folder.
    """
    try:
        return sorted(_walk(folder, [(folder, GitIgnoreSpec.from_lines(ALWAYS_IGNORED))]))
    except OSError as error:
        raise FileError(f"{error.filename}: cannot read the code: {error.strerror}") from error


def _walk(folder: Path, rules: list[_Rules]) -> Iterator[Path]:
    """The files below a folder; `rules` are those of the folders above it. Raises FileError."""
    for name in IGNORE_FILES:
        file = folder / name
        if file.is_file():
            lines = file.read_text("utf-8", "surrogateescape").splitlines()
            rules = [*rules, (folder, read_patterns(file, lines))]
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = folder / entry.name
            # Links to folders are followed by git neither; one to a file is archived as that file.
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_ignored(path, rules, is_folder=is_folder):
                continue
            if is_folder:
                yield from _walk(path, rules)
            elif path.is_file():
                yield path
            else:
                raise FileError(f"{path}: is neither a file nor a folder; add it to .hvdignore")


def _is_ignored(path: Path, rules: list[_Rules], *, is_folder: bool) -> bool:
    """Apply git's order: the last pattern that matches decides, those of inner folders last."""
    for folder, patterns in reversed(rules):
        name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
        verdict = patterns.check_file(name).include
        if verdict is not None:
            return verdict
    return False


def _add(archive: tarfile.TarFile, file: Path, name: str) -> None:
    """Archive a file without its owner and time, which say nothing about the code."""
    try:
        data = file.read_bytes()
        mode = file.stat().st_mode
    except OSError as error:
        raise FileError(f"{file}: cannot read the code: {error.strerror}") from error
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o755 if mode & 0o111 else 0o644
    archive.addfile(member, io.BytesIO(data))


def _check_size(path: Path, characters: int, files: list[Path]) -> None:
    """Raise FileError, with the largest of `files`, for more characters than the chart takes."""
    most = int(read_data("resources.json")["codeCharacters"])
    if characters <= most:
        return
    sizes = sorted(((file.stat().st_size, str(file)) for file in files), reverse=True)
    largest = ", ".join(f"{name} ({size // 1000} kB)" for size, name in sizes[:_NAMED])
    total = sum(size for size, _ in sizes) // 1000
    raise FileError(
        f"{path}: the code has more than {most} characters in base64, which is what the chart "
        f"takes. It has {pluralize(len(sizes), 'file')} of {total} kB; the largest "
        f"are {largest}: name what no training needs in .hvdignore, or put it into the image or "
        "onto a volume"
    )
