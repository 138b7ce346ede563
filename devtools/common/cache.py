"""The cache directory, and the keys under which built files are cached."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_dir() -> Path:
    """Return the directory for the results of all builds: tools, images, environments.

    It is $HVD_CACHE (default: hvd in the XDG cache directory). This function does not create it.
    """
    chosen = os.environ.get("HVD_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG base directory specification: ignore a relative path in the variable.
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "hvd"


def content_key(paths: Iterable[Path], *extra: str) -> str:
    """Return 16 hex digits that change when a file's name or content, or one of `extra`, changes.

    A directory in `paths` stands for all files below it, except compiled Python. Only the last
    component of a path counts, so that the key does not depend on the path of the checkout. Raises
    FileNotFoundError for a path that does not exist, because its key would never change.
    """
    digest = hashlib.sha256()
    for name, file in sorted(_named_files(paths)):
        _feed(digest, name.encode())
        _feed(digest, file.read_bytes())
    for text in extra:
        _feed(digest, b"+" + text.encode())
    return digest.hexdigest()[:16]


def _named_files(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    named: list[tuple[str, Path]] = []
    for path in paths:
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.is_file())
            named += [
                (f"{path.name}/{file.relative_to(path).as_posix()}", file)
                for file in inside
                if "__pycache__" not in file.parts
            ]
        elif path.exists():
            named.append((path.name, path))
        else:
            raise FileNotFoundError(f"{path}: no such file; a cache key depends on it")
    return named


def _feed(digest: hashlib._Hash, data: bytes) -> None:
    # The length comes first: moving a byte from one field to the next changes the key.
    digest.update(f"{len(data)}:".encode())
    digest.update(data)
