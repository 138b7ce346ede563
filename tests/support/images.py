"""Our images in the cluster."""

from __future__ import annotations

from devtools.localkube.images import load
from images.builder.build import build


def in_cluster(name: str, **versions: str) -> str:
    """Build one of our images, load it into the cluster, and return its reference.

    Does nothing where the image is here and in the cluster already.

    versions: those that replace the defaults, as `--set` does.
    """
    image = build(name, overrides=versions)
    load(image.reference)
    return image.reference
