"""Reads files and folders in programs that must start fast: without pathlib (ADR 12)."""

from __future__ import annotations

import os


def which(program: str) -> str | None:
    """Return the path of a program as shells find it, or None."""
    folders = [""] if "/" in program else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def read(path: str) -> bytes:
    """Return the content of a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names in a folder; empty if the folder does not exist."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
