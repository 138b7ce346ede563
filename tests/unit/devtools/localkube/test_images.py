"""Image names, and images of one program."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.localkube.images import full_name
from devtools.localkube.oci import pack_program


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("a", "docker.io/library/a:latest"),
        ("a:1", "docker.io/library/a:1"),
        ("localhost/a:1", "docker.io/library/a:1"),
        ("me/a:1", "docker.io/me/a:1"),
        ("registry.example/me/a", "registry.example/me/a:latest"),
        ("host:5000/a", "host:5000/a:latest"),
    ],
)
def test_full_name_is_the_name_that_kubernetes_uses(short: str, full: str) -> None:
    assert full_name(short) == full
    assert full_name(full) == full


def test_packed_program_is_reproducible(tmp_path: Path) -> None:
    program, archive = tmp_path / "program", tmp_path / "a.tar"
    packed = []
    for content in (b"x", b"x", b"y"):
        program.write_bytes(content)
        pack_program("docker.io/library/a:1", program, archive)
        packed.append(archive.read_bytes())
    assert packed[0] == packed[1] != packed[2]
