"""containerd's images, in the part of its store that Kubernetes sees."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass

from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import Image
from devtools.localkube.instance import Instance
from devtools.localkube.processes import ctr_command


@dataclass(frozen=True)
class Store:
    """The manifest's digest under each name.

    Kubernetes knows an image by its id as well, and keeps it as one more name, "sha256:...".
    """

    manifests: dict[str, str]

    @staticmethod
    def read(instance: Instance) -> Store:
        rows = [line.split() for line in ctr(instance, "images", "list").splitlines()[1:]]
        return Store({row[0]: row[2] for row in rows})

    def has(self, image: Image) -> bool:
        """True when every name of the image means this image and no other."""
        manifest = self.manifests.get(image.id)
        return manifest is not None and all(
            self.manifests.get(name) == manifest for name in image.names
        )

    def unnamed(self) -> list[str]:
        """The ids of images that have lost all their names to others, and only fill the disk."""
        named = {digest for name, digest in self.manifests.items() if not is_id(name)}
        return [
            name for name, digest in self.manifests.items() if is_id(name) and digest not in named
        ]


def is_id(name: str) -> bool:
    return name.startswith("sha256:")


def layers(instance: Instance, store: Store) -> dict[str, int]:
    """Digest and size of every layer that some image of the store holds on to."""
    found = {}
    for digest in set(store.manifests.values()):
        manifest = json.loads(ctr(instance, "content", "get", digest))
        found.update({layer["digest"]: layer["size"] for layer in manifest.get("layers", ())})
    return found


def imported_names(said: str) -> dict[str, str]:
    """The names that `ctr images import` says it has made, and their manifests' digests."""
    return dict(re.findall(r"^unpacking (\S+) \((sha256:[0-9a-f]{64})\)", said, re.MULTILINE))


def settle(instance: Instance, image: Image, imported: dict[str, str]) -> None:
    """After an import: gives the image all its names, and its id, which Kubernetes looks for.

    containerd 1.6 itself makes the id for a new name only, not for one that has moved from another
    image. Images that lost their last name so are removed; what runs from them goes on.
    """
    source = next((name for name in _as_imported(image) if name in imported), None)
    if source is None:
        raise LocalkubeError(
            f"containerd imported {', '.join(imported) or 'nothing'}, not {' '.join(image.names)}",
            "export the image by the name that pods ask for",
        )
    store = Store.read(instance)
    for name in (image.id, *image.names):
        if store.manifests.get(name) != imported[source]:
            ctr(instance, "images", "tag", "--force", source, name)
    left = Store.read(instance).unnamed()
    if left:
        ctr(instance, "images", "remove", *left)


def _as_imported(image: Image) -> list[str]:
    """The names that an archive may have had for it: in full, or as Buildah and Podman say it."""
    short = [name.removeprefix("docker.io/library/") for name in image.names]
    return [*(f"localhost/{name}" for name in short), *image.names]


def ctr(instance: Instance, *arguments: str) -> str:
    """Runs containerd's own client. Raises LocalkubeError."""
    command = [*ctr_command(instance), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise LocalkubeError(
            f"containerd refused `{' '.join(arguments)}`: {done.stderr.strip()}",
            f"read {instance.logs / 'containerd.log'}",
        )
    return done.stdout
