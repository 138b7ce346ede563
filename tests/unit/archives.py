"""Archives with members that a test chooses."""

from __future__ import annotations

import io
import tarfile

Member = tuple[tarfile.TarInfo, bytes]


def make_archive(*members: Member) -> bytes:
    """Return a tar.gz of these members."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def make_member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, mode: int = 0o600, target: str = ""
) -> Member:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = mode
    member.linkname = target
    member.size = len(data)
    return member, data
