"""A push from a builder becomes an archive of the layers that were missing, and of no others."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import read_archive
from devtools.localkube.intake import serve
from devtools.localkube.oci import LAYER, descriptor, write_pushed
from tests.localkube.pusher import Pusher

NAME = "docker.io/library/a:1"
LOW, HIGH = b"low layer" * 1000, b"high layer" * 1000


def digest(layer: bytes) -> str:
    return str(descriptor(LAYER, layer)["digest"])


def pushed(pusher: Pusher, known: dict[str, int], directory: Path) -> Path:
    (directory / "blobs").mkdir()
    with serve(known, directory / "blobs") as (intake, port):
        pusher(f"127.0.0.1:{port}/image:latest")
    write_pushed(intake, NAME, directory / "a.tar")
    return directory / "a.tar"


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items() if file}


@pytest.mark.parametrize("packs", [True, False])
def test_all_layers_of_a_new_image_come_unpacked(tmp_path: Path, packs: bool) -> None:
    archive = pushed(Pusher([LOW, HIGH], packs=packs), {}, tmp_path)
    found = members(archive)
    for layer in (LOW, HIGH):
        assert found["blobs/" + digest(layer).replace(":", "/")] == layer
    (image,) = read_archive(archive)
    assert image.names == (NAME,)
    assert image.id == digest(Pusher([LOW, HIGH]).config_blob())


def test_a_known_layer_is_neither_sent_nor_written_but_named(tmp_path: Path) -> None:
    pusher = Pusher([LOW, HIGH])
    archive = pushed(pusher, {digest(LOW): len(LOW)}, tmp_path)
    found = members(archive)
    assert "blobs/" + digest(LOW).replace(":", "/") not in found
    assert len(pusher.sent) == 2  # the other layer, and the config
    entry = json.loads(found["index.json"])["manifests"][0]
    manifest = json.loads(found["blobs/" + entry["digest"].replace(":", "/")])
    assert [layer["digest"] for layer in manifest["layers"]] == [digest(LOW), digest(HIGH)]
    assert [layer["size"] for layer in manifest["layers"]] == [len(LOW), len(HIGH)]


def test_a_layer_that_is_not_what_its_image_says_is_refused(tmp_path: Path) -> None:
    pusher = Pusher([LOW])
    pusher.config_blob = Pusher([HIGH]).config_blob  # type: ignore[method-assign]
    with pytest.raises(LocalkubeError, match="a layer has the digest"):
        pushed(pusher, {}, tmp_path)
