"""Image names and image archives."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import full_name, read_archive
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


def test_packed_program_is_reproducible_and_can_be_read(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"x")
    for archive in (tmp_path / "a.tar", tmp_path / "b.tar"):
        pack_program("docker.io/library/a:1", program, archive)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    (image,) = read_archive(tmp_path / "a.tar")
    assert image.names == ("docker.io/library/a:1",)
    program.write_bytes(b"y")
    pack_program("docker.io/library/a:1", program, tmp_path / "b.tar")
    (other,) = read_archive(tmp_path / "b.tar")
    assert other.id != image.id


def test_docker_archive_can_be_read(tmp_path: Path) -> None:
    entry = {"Config": "abc.json", "RepoTags": ["a:1", "localhost/a:1", "b:2"], "Layers": []}
    (tmp_path / "manifest.json").write_text(json.dumps([entry]))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "manifest.json", "manifest.json")
    (image,) = read_archive(tmp_path / "a.tar")
    assert image.id == "sha256:abc"
    assert image.names == ("docker.io/library/a:1", "docker.io/library/b:2")


def test_archive_without_an_image_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a tar")
    with pytest.raises(LocalkubeError, match="not a tar archive"):
        read_archive(tmp_path / "text")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(LocalkubeError, match=r"has neither manifest\.json"):
        read_archive(tmp_path / "empty.tar")
