"""Load images into the cluster: from an archive, or from the storage of Buildah, Podman or Docker.

containerd keeps them in the namespace of its store that Kubernetes uses, as names with the digests
of their manifests. Kubernetes also looks for an image by its id, which is one more name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.localkube.instance import Instance, current_instance
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.oci import write_pushed
from devtools.localkube.processes import ctr_command


@dataclass(frozen=True)
class LoadedImage:
    """id: the digest of its config, "sha256:...". names: complete, see full_name. is_skipped: the
    cluster already had it under these names.
    """

    id: str
    names: tuple[str, ...]
    is_skipped: bool = False


@dataclass(frozen=True)
class BuilderImage:
    """An image in a builder's storage. layers: the digests of its uncompressed layers, lowest
    first.
    """

    builder: str
    reference: str
    image: LoadedImage
    layers: tuple[str, ...]

    def export_command(self) -> list[str]:
        """Return the command that writes the image to standard output as a docker archive."""
        if self.builder == "buildah":
            (name,) = self.image.names
            return ["buildah", "push", self.reference, f"docker-archive:/dev/stdout:{name}"]
        options = ["--format=docker-archive"] if self.builder == "podman" else []
        return [self.builder, "save", *options, self.reference]


def full_name(reference: str) -> str:
    """Return the name that Kubernetes uses for an image: with registry, repository and tag.

    Buildah and Podman put localhost/ before the name of an image without a registry. Kubernetes
    reads a name without a registry as docker.io/library/..., so the cluster has it under that name.
    """
    reference = reference.removeprefix("docker.io/").removeprefix("localhost/")
    first, slash, _ = reference.partition("/")
    if not slash:
        reference = f"docker.io/library/{reference}"
    elif "." not in first and ":" not in first:
        reference = f"docker.io/{reference}"
    last = reference.rpartition("/")[2]
    return reference if ":" in last or "@" in last else f"{reference}:latest"


def load_images(source: str | Path, instance: Instance | None = None) -> list[LoadedImage]:
    """Load an OCI or docker archive (a path), or an image from Buildah's, Podman's or Docker's
    storage.

    An image is skipped if the cluster has it under the same config digest and names. From Buildah,
    only the missing layers are sent when they are fewer than half of all.
    Raises DevtoolsError when the source is neither, or the cluster is not running.
    """
    instance = instance or current_instance()
    if not instance.containerd_socket.exists():
        raise DevtoolsError(
            f"cluster {instance.name!r} is not running", "start it: python -m devtools.localkube up"
        )
    path = Path(source)
    if path.is_file():
        return _load_archive(instance, path)
    return [_load_from_builder(instance, find_builder_image(str(source)))]


def load_everywhere(source: str) -> list[LoadedImage]:
    """Load it into every running node of the current cluster, as `load` does.

    Each node has its own store. Return the images of all nodes, the first node's first.
    """
    first = current_instance()
    nodes = [first, *filter(NodeProcesses.is_running, first.others)]
    return [image for node in nodes for image in load_images(source, node)]


def find_builder_image(reference: str) -> BuilderImage:
    """Search Buildah, Podman and Docker, in this order. Raises DevtoolsError when none has it."""
    asked = []
    for builder in filter(shutil.which, ("buildah", "podman", "docker")):
        asked.append(builder)
        inspect = ["inspect", "--type=image", reference]
        answer = subprocess.run([builder, *inspect], check=False, capture_output=True, text=True)
        if answer.returncode == 0:
            details = json.loads(answer.stdout)
            if builder == "buildah":
                digest = details["FromImageID"]
                layers = details["OCIv1"]["rootfs"]["diff_ids"]
            else:
                digest = details[0]["Id"]
                layers = details[0]["RootFS"]["Layers"]
            image = LoadedImage(f"sha256:{digest.removeprefix('sha256:')}", (full_name(reference),))
            return BuilderImage(builder, reference, image, tuple(layers))
    searched = f"asked {', '.join(asked)}" if asked else "buildah, podman and docker are missing"
    raise DevtoolsError(
        f"{reference} is neither a file nor an image on this machine ({searched})",
        "build it first, or give the path of an image archive",
    )


def _load_archive(instance: Instance, archive: Path) -> list[LoadedImage]:
    """Load every image of the archive. Raises DevtoolsError when containerd cannot read it, and for
    an image without a name or for several platforms.
    """
    before = read_manifests(instance)
    imported = _parse_import(_ctr(instance, "images", "import", str(archive)))
    manifests = {
        name: json.loads(_ctr(instance, "content", "get", digest))
        for name, digest in imported.items()
        # containerd generates a name for an image without one.
        if not name.startswith("import-")
    }
    if not manifests or not all("config" in manifest for manifest in manifests.values()):
        raise DevtoolsError(
            f"{archive} has no image with a name, or one for several platforms",
            "export the image of one platform by name and tag: pods refer to it by name",
        )
    names: dict[str, list[str]] = {}
    for name, manifest in manifests.items():
        names.setdefault(manifest["config"]["digest"], []).append(full_name(name))
    loaded = []
    for digest, every in names.items():
        image = LoadedImage(digest, tuple(dict.fromkeys(every)))
        after = _tag(instance, image, imported)
        same = all(before.get(name) == after[name] for name in (image.id, *image.names))
        loaded.append(LoadedImage(image.id, image.names, is_skipped=same))
    return loaded


def _load_from_builder(instance: Instance, source: BuilderImage) -> LoadedImage:
    """Load an image from a builder's storage."""
    image = source.image
    manifests = read_manifests(instance)
    digests = {manifests.get(name) for name in (image.id, *image.names)}
    if len(digests) == 1 and None not in digests:
        return LoadedImage(image.id, image.names, is_skipped=True)
    known_layers = layer_sizes(instance, manifests)
    missing = [digest for digest in source.layers if digest not in known_layers]
    if source.builder == "buildah" and 2 * len(missing) < len(source.layers):
        scratch = cache_dir() / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch, prefix="load-") as folder:
            archive = pack_missing(source, known_layers, Path(folder))
            imported = _parse_import(_ctr(instance, "images", "import", str(archive)))
    else:
        imported = _import_export(instance, source)
    _tag(instance, image, imported)
    return image


def pack_missing(source: BuilderImage, known_layers: Mapping[str, int], folder: Path) -> Path:
    """Write an archive of an image of Buildah without the known layers, and return its path.

    If the layout has a file for a layer, Buildah neither writes the layer nor reads the file.
    known_layers: digest -> size in bytes.
    """
    layout = folder / "layout"
    archive = folder / "image.tar"
    for digest in set(source.layers) & known_layers.keys():
        blob = layout / "blobs" / digest.replace(":", "/")
        blob.parent.mkdir(parents=True, exist_ok=True)
        with blob.open("wb") as empty:
            empty.truncate(known_layers[digest])
    read_output(
        ["buildah", "push", source.reference, f"oci:{layout}:image"],
        remedy=f"check that Buildah can push {source.reference} to a folder",
    )
    write_pushed(layout, known_layers, source.image.names[0], archive)
    return archive


def _import_export(instance: Instance, source: BuilderImage) -> dict[str, str]:
    """Pipe the builder's export into containerd's import, without a copy on disk."""
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
        raise DevtoolsError(
            f"{source.builder} could not export {source.reference}: {message}",
            f"run `{' '.join(command)}` by hand",
        )
    if done.returncode != 0:
        raise DevtoolsError(
            f"containerd could not import {source.reference}: {done.stderr.strip()}",
            f"read {instance.logs / 'containerd.log'}",
        )
    return _parse_import(done.stdout)


def _parse_import(output: str) -> dict[str, str]:
    """Return name -> manifest digest of the images that `ctr images import` lists as imported."""
    return dict(re.findall(r"^unpacking (\S+) \((sha256:[0-9a-f]{64})\)", output, re.MULTILINE))


def _tag(instance: Instance, image: LoadedImage, imported: Mapping[str, str]) -> dict[str, str]:
    """Give an imported image all its names and its id. Remove images that lost their last name to
    it; containers that run from those continue. Return the resulting names of the store.

    containerd 1.6 adds the id only to an image with a new name, not to one that takes its name from
    another image. Raises DevtoolsError when `imported` does not have the image.
    """
    source = next((name for name in imported if full_name(name) in image.names), None)
    if source is None:
        raise DevtoolsError(
            f"containerd imported {', '.join(imported) or 'nothing'} instead of"
            f" {' '.join(image.names)}",
            "export the image by the name that pods use",
        )
    manifests = read_manifests(instance)
    for name in (image.id, *image.names):
        if manifests.get(name) != imported[source]:
            _ctr(instance, "images", "tag", "--force", source, name)
    tagged = read_manifests(instance)
    if untagged := untagged_ids(tagged):
        _ctr(instance, "images", "remove", *untagged)
    return tagged


def read_manifests(instance: Instance) -> dict[str, str]:
    """Return image name -> digest of its manifest, of all images of the store."""
    rows = [line.split() for line in _ctr(instance, "images", "list").splitlines()[1:]]
    return {row[0]: row[2] for row in rows}


def untagged_ids(manifests: Mapping[str, str]) -> list[str]:
    """Return the ids of images whose names now all belong to other images: no pod uses them any
    more.
    """
    named = {digest for name, digest in manifests.items() if not name.startswith("sha256:")}
    return [
        name
        for name, digest in manifests.items()
        if name.startswith("sha256:") and digest not in named
    ]


def layer_sizes(instance: Instance, manifests: Mapping[str, str]) -> dict[str, int]:
    """Return digest -> size in bytes of every layer that an image of the store uses."""
    sizes = {}
    for digest in set(manifests.values()):
        try:
            manifest = json.loads(_ctr(instance, "content", "get", digest))
        except DevtoolsError:
            # Another process has removed the image since the store was read.
            continue
        sizes.update({layer["digest"]: layer["size"] for layer in manifest.get("layers", ())})
    return sizes


def _ctr(instance: Instance, *arguments: str) -> str:
    """Run containerd's client and return its output. Raises DevtoolsError when it fails."""
    return read_output(
        [*ctr_command(instance), *arguments], remedy=f"read {instance.logs / 'containerd.log'}"
    )
