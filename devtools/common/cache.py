"""Where built things are kept, and the keys that say whether a kept thing is still right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_dir() -> Path:
    """The directory that every builder of this project keeps its results in.

    $HVD_CACHE when set, else hvd under the XDG cache directory. It is not created here.
    """
    chosen = os.environ.get("HVD_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG base directory specification says that a relative path there is to be ignored.
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "hvd"


def content_key(paths: Iterable[Path], *extra: str) -> str:
    """16 hex digits that change when a file's name or contents, or one of `extra`, changes.

    A directory in `paths` stands for all files below it, each named by its path inside that
    directory; a file is named by its last component, so that a key is the same wherever the
    checkout lies. Raises FileNotFoundError for a path that does not exist: a key over nothing would
    never change.
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
            raise FileNotFoundError(f"{path}: no such file; it is part of a cache key")
    return named


def _feed(digest: hashlib._Hash, data: bytes) -> None:
    # The length goes in first, so that moving a byte from one field to the next changes the key.
    digest.update(f"{len(data)}:".encode())
    digest.update(data)
