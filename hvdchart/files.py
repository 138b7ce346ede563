"""Files written whole or not at all, and compared."""

from __future__ import annotations

import difflib
import os
import tempfile
from pathlib import Path

from hvdchart.errors import FileError


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` whole or not at all; raises FileError.

    A link stays one and its target is written. What is no file, /dev/null or a pipe, is written
    into: it is not ours to replace.
    """
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            path.write_text(text, "utf-8")
            return
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            # mkstemp's 0600 would hide the file from who could read it under its old name.
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{path}: cannot write: {error.strerror}") from error


def difference(path: Path, text: str) -> str:
    """What would change if `text` were written to `path`, as a unified diff; empty: nothing."""
    try:
        old = path.read_text("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot read: {error}") from error
    lines = difflib.unified_diff(
        old.splitlines(), text.splitlines(), str(path), "rendered", n=2, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)
