"""containerd's images, in the namespace of its store that Kubernetes uses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from devtools.common.commands import read_output
from devtools.common.errors import LocalkubeError
from devtools.localkube.instance import Instance
from devtools.localkube.processes import ctr_command


@dataclass(frozen=True)
class Image:
    """id: the digest of the image's config, "sha256:...". names: complete, see full_name."""

    id: str
    names: tuple[str, ...]


def full_name(reference: str) -> str:
    """The name by which Kubernetes knows an image: with registry, repository and tag.

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


@dataclass(frozen=True)
class ImageStore:
    """manifests: image name -> digest of its manifest.

    Kubernetes also looks for an image by its id, which is one more name, "sha256:...".
    """

    manifests: dict[str, str]

    @staticmethod
    def read(instance: Instance) -> ImageStore:
        rows = [line.split() for line in ctr(instance, "images", "list").splitlines()[1:]]
        return ImageStore({row[0]: row[2] for row in rows})

    def has(self, image: Image) -> bool:
        """True when the store has the image under its id and under each of its names."""
        manifest = self.manifests.get(image.id)
        return manifest is not None and all(
            self.manifests.get(name) == manifest for name in image.names
        )

    def untagged_ids(self) -> list[str]:
        """The ids of images whose names all belong to other images now, so that no pod uses them
        any more.
        """
        named = {digest for name, digest in self.manifests.items() if not is_id(name)}
        return [
            name for name, digest in self.manifests.items() if is_id(name) and digest not in named
        ]


def is_id(name: str) -> bool:
    return name.startswith("sha256:")


def layer_sizes(instance: Instance, store: ImageStore) -> dict[str, int]:
    """Digest -> size in bytes of every layer that an image of the store uses."""
    sizes = {}
    for digest in set(store.manifests.values()):
        try:
            manifest = json.loads(ctr(instance, "content", "get", digest))
        except LocalkubeError:
            # Another process has removed the image since the store was read.
            continue
        sizes.update({layer["digest"]: layer["size"] for layer in manifest.get("layers", ())})
    return sizes


def parse_import_output(output: str) -> dict[str, str]:
    """Name -> manifest digest of the images that `ctr images import` lists as imported."""
    return dict(re.findall(r"^unpacking (\S+) \((sha256:[0-9a-f]{64})\)", output, re.MULTILINE))


def tag_imported_image(instance: Instance, image: Image, imported: dict[str, str]) -> None:
    """Gives an imported image all its names and its id, and removes images that lost their last
    name to it; containers that run from those go on.

    containerd 1.6 adds the id only to an image with a new name, not to one that takes its name
    from another image. Raises LocalkubeError when `imported` does not have the image.
    """
    source = next((name for name in _possible_names(image) if name in imported), None)
    if source is None:
        raise LocalkubeError(
            f"containerd imported {', '.join(imported) or 'nothing'} instead of"
            f" {' '.join(image.names)}",
            "export the image by the name that pods use",
        )
    store = ImageStore.read(instance)
    for name in (image.id, *image.names):
        if store.manifests.get(name) != imported[source]:
            ctr(instance, "images", "tag", "--force", source, name)
    untagged = ImageStore.read(instance).untagged_ids()
    if untagged:
        ctr(instance, "images", "remove", *untagged)


def _possible_names(image: Image) -> list[str]:
    """The names that an archive may have for the image: complete, or as Buildah and Podman write
    them.
    """
    short = [name.removeprefix("docker.io/library/") for name in image.names]
    return [*(f"localhost/{name}" for name in short), *image.names]


def ctr(instance: Instance, *arguments: str) -> str:
    """Runs containerd's client and returns what it prints. Raises LocalkubeError when it fails."""
    return read_output(
        [*ctr_command(instance), *arguments],
        remedy=f"read {instance.logs / 'containerd.log'}",
        error=LocalkubeError,
    )
