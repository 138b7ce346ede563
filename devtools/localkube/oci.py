"""Writing images as OCI archives: an OCI image layout (version 1.0.0) in a tar."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devtools.common.errors import LocalkubeError
from devtools.localkube.intake import CHUNK, Intake

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# Any user but root: an image of one program has no /etc/passwd to name one.
USER = "65535:65535"
# What Go, and with it OCI, calls the machines that uname(2) calls otherwise.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

# {"mediaType": ..., "digest": "sha256:...", "size": in bytes}
Descriptor = dict[str, Any]


def pack_program(name: str, program: Path, archive: Path) -> None:
    """Writes an image called `name` (in full, with its tag) whose one file, `program`, is run.

    The same program gives the same bytes, and with them the same image digest.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, program.name, program.read_bytes(), 0o755)
    layer = descriptor(LAYER, buffer.getvalue())
    machine = platform.machine()
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": USER},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    blobs = {layer["digest"]: buffer.getvalue()}
    write_archive(archive, name, to_json(config), [layer], blobs)


def write_pushed(intake: Intake, name: str, archive: Path) -> None:
    """Writes what a builder has pushed, without the layers that it need not send.

    Layers go in unpacked, under the digest by which every builder knows them, so that the next push
    of an image upon them need not bring them again. Raises LocalkubeError for a layer in a format
    other than a tar, plain or gzipped.
    """
    manifest = json.loads(intake.manifest)
    config = intake.blobs[manifest["config"]["digest"]].read_bytes()
    layers: list[Descriptor] = []
    blobs: dict[str, bytes | Path] = {}
    for layer, digest in zip(
        manifest["layers"], json.loads(config)["rootfs"]["diff_ids"], strict=True
    ):
        sent = intake.blobs.get(layer["digest"])
        if sent is None:
            layers.append(layer)
        else:
            blobs[digest] = _unpack(sent, layer["mediaType"], digest)
            layers.append({"mediaType": LAYER, "digest": digest, "size": sent.stat().st_size})
    write_archive(archive, name, config, layers, blobs)


def write_archive(
    archive: Path,
    name: str,
    config: bytes,
    layers: list[Descriptor],
    blobs: Mapping[str, bytes | Path],
) -> None:
    """Writes an image called `name`. blobs: the layers that go in, by digest; bytes or a file."""
    described = descriptor(CONFIG, config)
    manifest = to_json(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers}
    )
    entry = {
        **descriptor(MANIFEST, manifest),
        "annotations": {"io.containerd.image.name": name},
    }
    every = {described["digest"]: config, entry["digest"]: manifest, **blobs}
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", to_json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", to_json({"schemaVersion": 2, "manifests": [entry]}))
        for digest, blob in every.items():
            _add(tar, "blobs/" + digest.replace(":", "/"), blob)


def _add(tar: tarfile.TarFile, name: str, data: bytes | Path, mode: int = 0o644) -> None:
    """Without times and owners, so that the same contents give the same archive."""
    info = tarfile.TarInfo(name)
    info.mode = mode
    if isinstance(data, Path):
        info.size = data.stat().st_size
        with data.open("rb") as file:
            tar.addfile(info, file)
    else:
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))


def _unpack(layer: Path, media_type: str, digest: str) -> Path:
    """Turns the file into the plain tar that `digest` is of, in its place."""
    if media_type.endswith("gzip"):
        plain = layer.with_suffix(".tar")
        with gzip.open(layer) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
        plain.replace(layer)
    elif not media_type.endswith("tar"):
        raise LocalkubeError(
            f"a layer came as {media_type}; a plain or gzipped tar was expected",
            "set the builder's compression format to gzip",
        )
    with layer.open("rb") as file:
        found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if found != digest:
        raise LocalkubeError(
            f"a layer has the digest {found}, and its image says {digest}", "build the image again"
        )
    return layer


def descriptor(media_type: str, data: bytes) -> Descriptor:
    digest = hashlib.sha256(data).hexdigest()
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def to_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
