"""Bringing images into the cluster: from an archive, or from a builder's storage."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import Image, read_archive
from devtools.localkube.builders import Held, find
from devtools.localkube.instance import Instance, current
from devtools.localkube.intake import serve
from devtools.localkube.oci import write_pushed
from devtools.localkube.processes import ctr_command
from devtools.localkube.store import Store, ctr, imported_names, layers, settle


@dataclass(frozen=True)
class Loaded:
    """skipped: the very same image was there already."""

    names: tuple[str, ...]
    id: str
    skipped: bool


def load(source: str | Path, instance: Instance | None = None) -> list[Loaded]:
    """Loads an OCI or docker archive (a path), or an image that Buildah, Podman or Docker holds.

    An image that the cluster has already, by config digest and name, is not read again; of one that
    Buildah holds, only the layers that the cluster lacks are, when these are the fewer.
    Raises LocalkubeError when the source is neither, or the cluster is down.
    """
    instance = instance or current()
    if not instance.containerd_socket.exists():
        raise LocalkubeError(
            f"cluster {instance.name!r} is not up", "start it: python -m devtools.localkube up"
        )
    path = Path(source)
    if path.is_file():
        return load_archive(instance, path)
    return [load_held(instance, find(str(source)))]


def load_archive(instance: Instance, archive: Path) -> list[Loaded]:
    images = read_archive(archive)
    store = Store.read(instance)
    if all(store.has(image) for image in images):
        return [Loaded(image.names, image.id, skipped=True) for image in images]
    imported = imported_names(ctr(instance, "images", "import", str(archive)))
    for image in images:
        settle(instance, image, imported)
    return [Loaded(image.names, image.id, skipped=False) for image in images]


def load_held(instance: Instance, held: Held) -> Loaded:
    image = Image(held.id, (held.name,))
    store = Store.read(instance)
    if store.has(image):
        return Loaded(image.names, image.id, skipped=True)
    known = layers(instance, store)
    missing = [digest for digest in held.layers if digest not in known]
    if held.builder == "buildah" and 2 * len(missing) < len(held.layers):
        imported = load_pushed(
            instance, held.name, known, lambda place: _push(held.reference, place)
        )
    else:
        imported = _import_export(instance, held)
    settle(instance, image, imported)
    return Loaded(image.names, image.id, skipped=False)


def load_pushed(
    instance: Instance, name: str, known: dict[str, int], push: Callable[[str], None]
) -> dict[str, str]:
    """Imports what `push`, called with "127.0.0.1:PORT/image:latest", sends there: an image of
    which the cluster's store has the layers in `known`. Returns names and digests.
    """
    scratch = cache_dir() / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="load-") as directory:
        with serve(known, Path(directory)) as (intake, port):
            push(f"127.0.0.1:{port}/image:latest")
        archive = Path(directory) / "image.tar"
        write_pushed(intake, name, archive)
        return imported_names(ctr(instance, "images", "import", str(archive)))


def _push(reference: str, place: str) -> None:
    command = ["buildah", "push", "--tls-verify=false", reference, f"docker://{place}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise LocalkubeError(
            f"buildah could not hand over {reference} (status {done.returncode}): {done.stderr}",
            "see whether it can push that image elsewhere",
        )


def _import_export(instance: Instance, held: Held) -> dict[str, str]:
    """From the builder straight into the store, so that no second copy takes time and space."""
    command = held.export_command()
    into = [*ctr_command(instance), "images", "import", "-"]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as export:
            done = subprocess.run(
                into, stdin=export.stdout, check=False, capture_output=True, text=True
            )
            if export.stdout is not None:
                export.stdout.close()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if export.returncode != 0:
        raise LocalkubeError(
            f"{held.builder} could not export {held.reference}: {said}",
            f"see what `{' '.join(command)}` says",
        )
    if done.returncode != 0:
        raise LocalkubeError(
            f"containerd could not import {held.reference}: {done.stderr.strip()}",
            f"read {instance.logs / 'containerd.log'}",
        )
    return imported_names(done.stdout)
