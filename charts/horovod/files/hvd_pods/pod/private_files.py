"""Files that no other user may read: private keys, and files that may contain a password."""

from __future__ import annotations

import os
from pathlib import Path


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in one step: a reader sees the old content or the new one.

    An existing file is replaced, with its mode. Raises OSError.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
    new.replace(path)
