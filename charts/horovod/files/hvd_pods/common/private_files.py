"""Files that only the pod's user may read."""

from __future__ import annotations

from pathlib import Path


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600. An existing file is replaced, with its mode."""
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(content)
