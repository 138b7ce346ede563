"""Writes files in one step, compares them with a text, and reads patterns of ignored files."""

from __future__ import annotations

import difflib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hvdchart.errors import FileError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


def write_atomically(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Replace `path` by a file with `content` (text is written as UTF-8) in one step.

    A reader never sees half of the content, and a crash never leaves it. `mode` is the file's
    permissions; None: as the umask allows. A symbolic link stays one, and its target is replaced. A
    device or a pipe, such as /dev/stdout, is written to directly. Raises FileError when the file
    cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        # A pipe that /dev/stdout names has no path of its own.
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        path = Path(os.path.realpath(path))
        if path.is_symlink():
            # Only a link that leads back to itself has no target. This raises the error.
            path.stat()
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with os.fdopen(descriptor, "wb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{path}: cannot write: {error.strerror}") from error


def file_difference(path: Path, text: str) -> str:
    """Return the diff from the file to `text`: empty if equal, all of `text` without a file.

    Raises FileError when the file cannot be read.
    """
    try:
        file_text = path.read_text("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot read: {error}") from error
    return text_difference(file_text, text, str(path), "rendered")


def text_difference(old: str, new: str, old_name: str, new_name: str) -> str:
    """Return the unified diff between two texts; empty if they are equal."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), old_name, new_name, n=2, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def read_patterns(file: Path, lines: Sequence[str]) -> GitIgnoreSpec:
    """Return the patterns in the lines of a .gitignore or a similar file.

    Raises FileError, with the file's name and the line, for an invalid pattern: a lone `!`.
    """
    # Imported here because most commands read no such file.
    from pathspec import GitIgnoreSpec

    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            raise FileError(f"{file}:{number}: {line!r} is not a pattern of .gitignore") from None
    return GitIgnoreSpec.from_lines(lines)
