"""Write images as OCI archives: an OCI image layout (version 1.0.0) in a tar file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from devtools.common.errors import DevtoolsError

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# Not root. A number, because an image of one program has no /etc/passwd.
USER = "65535:65535"
# uname(2)'s machine name -> the name that Go and OCI use.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

# {"mediaType": ..., "digest": "sha256:...", "size": in bytes}
Descriptor = dict[str, Any]


def pack_program(name: str, program: Path, archive: Path) -> None:
    """Write an image `name` (in full, with its tag) whose only file and entrypoint is `program`.

    The same program always gives the same bytes, and therefore the same image digest.
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


def write_pushed(layout: Path, known_layers: Container[str], name: str, archive: Path) -> None:
    """Write the image of an OCI layout, without the known layers.

    Layers are written uncompressed, under the digest that every builder uses for them. A later load
    of an image with the same layers therefore finds them. Raises DevtoolsError for a layer that is
    neither a tar file nor a gzipped one.
    """

    def blob(digest: str) -> Path:
        return layout / "blobs" / digest.replace(":", "/")

    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry["digest"]).read_text())
    config = blob(manifest["config"]["digest"]).read_bytes()
    layers: list[Descriptor] = []
    blobs: dict[str, bytes | Path] = {}
    for layer, digest in zip(
        manifest["layers"], json.loads(config)["rootfs"]["diff_ids"], strict=True
    ):
        if layer["digest"] in known_layers:
            layers.append(layer)
        else:
            sent = blobs[digest] = _unpack(blob(layer["digest"]), layer["mediaType"], digest)
            layers.append({"mediaType": LAYER, "digest": digest, "size": sent.stat().st_size})
    write_archive(archive, name, config, layers, blobs)


def write_archive(
    archive: Path,
    name: str,
    config: bytes,
    layers: list[Descriptor],
    blobs: Mapping[str, bytes | Path],
) -> None:
    """Write an image `name`. blobs: the layers to include, by digest, as bytes or as a file."""
    config_descriptor = descriptor(CONFIG, config)
    manifest = to_json(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": config_descriptor, "layers": layers}
    )
    entry = {**descriptor(MANIFEST, manifest), "annotations": {"io.containerd.image.name": name}}
    all_blobs = {config_descriptor["digest"]: config, entry["digest"]: manifest, **blobs}
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        _add(tar, "oci-layout", to_json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", to_json({"schemaVersion": 2, "manifests": [entry]}))
        for digest, blob in all_blobs.items():
            _add(tar, "blobs/" + digest.replace(":", "/"), blob)


def _add(tar: tarfile.TarFile, name: str, data: bytes | Path, mode: int = 0o644) -> None:
    """Add a file without time and owner, so that the same contents give the same archive."""
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
    """Replace the file by its uncompressed tar and check that the tar has the given digest."""
    if media_type.endswith("gzip"):
        plain = layer.with_suffix(".tar")
        with gzip.open(layer) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        plain.replace(layer)
    elif not media_type.endswith("tar"):
        raise DevtoolsError(
            f"a layer has the media type {media_type}; a tar, plain or gzipped, is expected",
            "set the builder's compression format to gzip",
        )
    with layer.open("rb") as file:
        actual = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if actual != digest:
        raise DevtoolsError(
            f"a layer has the digest {actual}, and the image's config lists {digest}",
            "build the image again",
        )
    return layer


def descriptor(media_type: str, data: bytes) -> Descriptor:
    digest = hashlib.sha256(data).hexdigest()
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def to_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
