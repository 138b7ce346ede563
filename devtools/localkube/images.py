"""Loads images into the cluster: from an archive, or from a builder's storage."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import Image, read_archive
from devtools.localkube.builders import BuilderImage, find, pack_missing
from devtools.localkube.instance import Instance, current
from devtools.localkube.processes import ctr_command
from devtools.localkube.store import (
    ImageStore,
    ctr,
    layer_sizes,
    parse_import_output,
    tag_imported_image,
)


@dataclass(frozen=True)
class LoadedImage:
    """skipped: the cluster had this image under these names before."""

    names: tuple[str, ...]
    id: str
    skipped: bool


def load(source: str | Path, instance: Instance | None = None) -> list[LoadedImage]:
    """Loads an OCI or docker archive (a path), or an image from Buildah's, Podman's or Docker's
    storage.

    An image that the cluster has under the same config digest and names is skipped. From Buildah,
    only the missing layers are sent when they are fewer than half of all.
    Raises LocalkubeError when the source is neither, or the cluster is not running.
    """
    instance = instance or current()
    if not instance.containerd_socket.exists():
        raise LocalkubeError(
            f"cluster {instance.name!r} is not running",
            "start it: python -m devtools.localkube up",
        )
    path = Path(source)
    if path.is_file():
        return load_archive(instance, path)
    return [load_from_builder(instance, find(str(source)))]


def load_archive(instance: Instance, archive: Path) -> list[LoadedImage]:
    """Loads every image of the archive."""
    images = read_archive(archive)
    store = ImageStore.read(instance)
    if all(store.has(image) for image in images):
        return [LoadedImage(image.names, image.id, skipped=True) for image in images]
    imported = parse_import_output(ctr(instance, "images", "import", str(archive)))
    for image in images:
        tag_imported_image(instance, image, imported)
    return [LoadedImage(image.names, image.id, skipped=False) for image in images]


def load_from_builder(instance: Instance, source: BuilderImage) -> LoadedImage:
    """Loads an image from a builder's storage."""
    image = Image(source.id, (source.name,))
    store = ImageStore.read(instance)
    if store.has(image):
        return LoadedImage(image.names, image.id, skipped=True)
    known_layers = layer_sizes(instance, store)
    missing = [digest for digest in source.layers if digest not in known_layers]
    if source.builder == "buildah" and 2 * len(missing) < len(source.layers):
        scratch = cache_dir() / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch, prefix="load-") as folder:
            archive = pack_missing(source, known_layers, Path(folder))
            imported = parse_import_output(ctr(instance, "images", "import", str(archive)))
    else:
        imported = _import_export(instance, source)
    tag_imported_image(instance, image, imported)
    return LoadedImage(image.names, image.id, skipped=False)


def _import_export(instance: Instance, source: BuilderImage) -> dict[str, str]:
    """Pipes the builder's export into containerd's import, without a copy on disk."""
    command = source.export_command()
    importer = [*ctr_command(instance), "images", "import", "-"]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as export:
            done = subprocess.run(
                importer, stdin=export.stdout, check=False, capture_output=True, text=True
            )
            if export.stdout is not None:
                export.stdout.close()
        errors.seek(0)
        message = errors.read().decode(errors="replace").strip()
    if export.returncode != 0:
        raise LocalkubeError(
            f"{source.builder} could not export {source.reference}: {message}",
            f"run `{' '.join(command)}` by hand",
        )
    if done.returncode != 0:
        raise LocalkubeError(
            f"containerd could not import {source.reference}: {done.stderr.strip()}",
            f"read {instance.logs / 'containerd.log'}",
        )
    return parse_import_output(done.stdout)
