"""Writes the code of a run, as the cluster has it, to a folder.

Anybody who may change ConfigMaps of the namespace may have written it: only regular files and
folders come out of it, of a bounded number and size, and none outside the folder.
"""

from __future__ import annotations

import base64
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from hvdchart.code.archive import MOST_BYTES
from hvdchart.errors import FileError

MOST_ENTRIES = 20_000
LONGEST_NAME = 1000
# They are left out: programs run what these name as soon as a person enters the folder.
_NEVER = {".git", ".hg", ".svn"}


def unpack_code(config_map: Mapping[str, Any], folder: Path) -> list[str]:
    """Write the files of a release's ConfigMap to a new folder, and return their names.

    Raises FileError when the folder has files already or cannot be written, and, before anything is
    written, when the ConfigMap has something else than code.
    """
    try:
        entries = {_relative(name): (mode, content) for name, mode, content in _entries(config_map)}
    except (ValueError, TypeError, AttributeError, tarfile.TarError, EOFError) as error:
        raise FileError(f"the ConfigMap has no code that can be unpacked: {error}") from error
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileError(f"{folder}: is not empty; name a new folder")
        for name, (mode, content) in entries.items():
            # Windows leaves out dots and spaces at the end.
            if _NEVER & {part.lower().rstrip(". ") for part in PureWindowsPath(name).parts}:
                continue
            path = folder / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # Windows has no O_NOFOLLOW.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(path, flags, mode), "wb") as file:
                file.write(content)
            written.append(name)
    except OSError as error:
        raise FileError(f"{folder}: cannot write the code: {error}") from error
    return sorted(written)


def _entries(config_map: Mapping[str, Any]) -> Iterator[tuple[str, int, bytes | None]]:
    """Each file with its mode and content, and each folder with None in the place of that.

    Raises ValueError and tarfile.TarError for an archive that has something else.
    """
    # A text that YAML cannot have is binary data, too.
    for name, encoded in (config_map.get("binaryData") or {}).items():
        content = base64.b64decode(encoded)
        if name == "archive.tgz":
            yield from _members(_decompress(content))
        else:
            yield name, 0o644, content
    for name, text in (config_map.get("data") or {}).items():
        yield name, 0o644, text.encode()


def _decompress(data: bytes) -> bytes:
    """The content of a gzip archive; raises ValueError for one that is damaged or too large."""
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it is no whole gzip archive: {error}") from error
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return content


def _members(content: bytes) -> Iterator[tuple[str, int, bytes | None]]:
    # As a stream, in which no entry can lead back to one before it.
    with tarfile.open(fileobj=io.BytesIO(content), mode="r|") as archive:
        for number, member in enumerate(archive):
            if number >= MOST_ENTRIES:
                raise ValueError(f"it has more than {MOST_ENTRIES} entries")
            is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            if not is_file and not member.isdir():
                raise ValueError(f"{member.name!r} is neither a file nor a folder")
            if not 0 <= member.size <= len(content):
                raise ValueError(f"{member.name!r} has a wrong size")
            file = archive.extractfile(member) if is_file else None
            mode = 0o755 if member.mode & 0o111 else 0o644
            yield member.name, mode, file.read() if file else None


def _relative(name: str) -> str:
    """A name below the folder; raises ValueError for one that is too long or leads out of it."""
    if len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        raise ValueError(f"{name[:40]!r}... has more than {LONGEST_NAME} bytes")
    # Windows also takes `\` for a separator, and `C:` for a drive.
    path = PureWindowsPath(name)
    if path.anchor or "\0" in name or ".." in path.parts:
        raise ValueError(f"{name!r} leads out of the folder")
    return os.path.normpath(name)
