"""The image builders of this machine and the images in their storage."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devtools.common.commands import read_output
from devtools.common.errors import LocalkubeError
from devtools.localkube.oci import write_pushed
from devtools.localkube.store import full_name


@dataclass(frozen=True)
class BuilderImage:
    """An image in a builder's storage. id: the digest of its config. layers: the digests of its
    uncompressed layers, lowest first.
    """

    builder: str
    reference: str
    id: str
    layers: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name by which Kubernetes knows the image."""
        return full_name(self.reference)

    def export_command(self) -> list[str]:
        """The command that writes the image to standard output as a docker archive."""
        if self.builder == "buildah":
            return ["buildah", "push", self.reference, f"docker-archive:/dev/stdout:{self.name}"]
        if self.builder == "podman":
            return ["podman", "save", "--format=docker-archive", self.reference]
        return ["docker", "save", self.reference]


def find(reference: str) -> BuilderImage:
    """Looks in Buildah, Podman and Docker, in this order. Raises LocalkubeError when none has the
    image.
    """
    asked = []
    for builder in filter(shutil.which, ("buildah", "podman", "docker")):
        asked.append(builder)
        inspect = ["inspect", "--type=image", reference]
        answer = subprocess.run([builder, *inspect], check=False, capture_output=True, text=True)
        if answer.returncode == 0:
            found = json.loads(answer.stdout)
            if builder == "buildah":
                digest, layers = found["FromImageID"], found["OCIv1"]["rootfs"]["diff_ids"]
            else:
                digest, layers = found[0]["Id"], found[0]["RootFS"]["Layers"]
            digest = f"sha256:{digest.removeprefix('sha256:')}"
            return BuilderImage(builder, reference, digest, tuple(layers))
    searched = f"asked {', '.join(asked)}" if asked else "buildah, podman and docker are missing"
    raise LocalkubeError(
        f"{reference} is neither a file nor an image on this machine ({searched})",
        "build it first, or give the path of an image archive",
    )


def pack_missing(source: BuilderImage, known_layers: Mapping[str, int], folder: Path) -> Path:
    """Writes an archive of an image of Buildah without the known layers, and returns its path.

    Buildah writes no layer for which the layout has a file; it does not read that file.
    known_layers: digest -> size in bytes.
    """
    layout, archive = folder / "layout", folder / "image.tar"
    for digest in set(source.layers) & known_layers.keys():
        blob = layout / "blobs" / digest.replace(":", "/")
        blob.parent.mkdir(parents=True, exist_ok=True)
        with blob.open("wb") as empty:
            empty.truncate(known_layers[digest])
    read_output(
        ["buildah", "push", source.reference, f"oci:{layout}:image"],
        remedy=f"check that Buildah can push {source.reference} to a folder",
        error=LocalkubeError,
    )
    write_pushed(layout, known_layers, source.name, archive)
    return archive
