"""Image names, image archives, and pushes, whose archive has only the layers that were missing."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import full_name, read_archive
from devtools.localkube.oci import (
    LAYER,
    descriptor,
    pack_program,
    write_pushed,
)
from devtools.localkube.push_receiver import receive_push
from tests.unit.devtools.localkube.pusher import Pusher

NAME = "docker.io/library/a:1"
LOW, HIGH = b"low layer" * 1000, b"high layer" * 1000


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


def digest(layer: bytes) -> str:
    return str(descriptor(LAYER, layer)["digest"])


def push(pusher: Pusher, known_layers: dict[str, int], directory: Path) -> Path:
    (directory / "blobs").mkdir()
    with receive_push(known_layers, directory / "blobs") as (image, port):
        pusher(f"127.0.0.1:{port}/image:latest")
    write_pushed(image, NAME, directory / "a.tar")
    return directory / "a.tar"


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items() if file}


@pytest.mark.parametrize("compress", [True, False])
def test_layers_of_a_new_image_are_written_uncompressed(tmp_path: Path, compress: bool) -> None:
    archive = push(Pusher([LOW, HIGH], compress=compress), {}, tmp_path)
    blobs = members(archive)
    for layer in (LOW, HIGH):
        assert blobs["blobs/" + digest(layer).replace(":", "/")] == layer
    (image,) = read_archive(archive)
    assert image.names == (NAME,)
    assert image.id == digest(Pusher([LOW, HIGH]).config_blob())


def test_known_layer_is_not_sent_but_listed_in_the_manifest(tmp_path: Path) -> None:
    pusher = Pusher([LOW, HIGH])
    archive = push(pusher, {digest(LOW): len(LOW)}, tmp_path)
    blobs = members(archive)
    assert "blobs/" + digest(LOW).replace(":", "/") not in blobs
    assert len(pusher.sent) == 2  # the other layer, and the config
    entry = json.loads(blobs["index.json"])["manifests"][0]
    manifest = json.loads(blobs["blobs/" + entry["digest"].replace(":", "/")])
    assert [layer["digest"] for layer in manifest["layers"]] == [digest(LOW), digest(HIGH)]
    assert [layer["size"] for layer in manifest["layers"]] == [len(LOW), len(HIGH)]


def test_layer_with_a_wrong_digest_raises_an_error(tmp_path: Path) -> None:
    pusher = Pusher([LOW])
    pusher.config_blob = Pusher([HIGH]).config_blob  # type: ignore[method-assign]
    with pytest.raises(LocalkubeError, match=r"a layer has the digest .* config lists"):
        push(pusher, {}, tmp_path)
