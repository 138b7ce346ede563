"""Folders with files that a test chooses."""

from __future__ import annotations

from pathlib import Path


def write_files(folder: Path, files: dict[str, str]) -> Path:
    """Write files, whose folders are created."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder
