"""A push from a builder becomes an archive that has only the layers that were missing."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import read_archive
from devtools.localkube.oci import LAYER, descriptor, write_pushed
from devtools.localkube.push_receiver import receive_push
from tests.unit.devtools.localkube.pusher import Pusher

NAME = "docker.io/library/a:1"
LOW, HIGH = b"low layer" * 1000, b"high layer" * 1000


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
