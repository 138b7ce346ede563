"""Writes the code of a run, as the cluster has it, to a folder."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

from hvdchart.errors import FileError


def unpack_code(config_map: dict[str, Any], folder: Path) -> list[str]:
    """Write the files of a release's ConfigMap to a new folder, and return their names.

    Raises FileError when the folder has files already, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileError(f"{folder}: is not empty; name a new folder")
        archive = (config_map.get("binaryData") or {}).get("archive.tgz")
        if archive:
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as content:
                # Refuses entries outside the folder, devices and the like.
                content.extractall(folder, filter="data")
        for name, text in (config_map.get("data") or {}).items():
            (folder / name).write_text(text, "utf-8")
    except (OSError, tarfile.TarError) as error:
        raise FileError(f"{folder}: cannot write the code: {error}") from error
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)
