"""Loads images into the cluster: from an archive, or from a builder's storage."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import LocalkubeError
from devtools.localkube.builders import BuilderImage, find, pack_missing
from devtools.localkube.instance import Instance, current
from devtools.localkube.processes import ctr_command
from devtools.localkube.store import (
    Image,
    ImageStore,
    ctr,
    full_name,
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
    """Loads every image of the archive. Raises LocalkubeError when containerd cannot read it, and
    for an image without a name or for several platforms.
    """
    before = ImageStore.read(instance).manifests
    imported = parse_import_output(ctr(instance, "images", "import", str(archive)))
    # containerd makes a name up for an image without one.
    if not imported or any(name.startswith("import-") for name in imported):
        raise LocalkubeError(
            f"{archive} has no image with a name",
            "export the image by name and tag, not by id: pods refer to it by name",
        )
    names: dict[str, list[str]] = {}
    for name, digest in imported.items():
        manifest = json.loads(ctr(instance, "content", "get", digest))
        if "config" not in manifest:
            raise LocalkubeError(
                f"{archive} has images for several platforms", "export the image of one platform"
            )
        names.setdefault(manifest["config"]["digest"], []).append(full_name(name))
    images = [Image(digest, tuple(dict.fromkeys(every))) for digest, every in names.items()]
    for image in images:
        tag_imported_image(instance, image, imported)
    after = ImageStore.read(instance).manifests
    return [
        LoadedImage(
            image.names,
            image.id,
            skipped=all(before.get(name) == after[name] for name in (image.id, *image.names)),
        )
        for image in images
    ]


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
