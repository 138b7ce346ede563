"""This repository's images in the cluster."""

from __future__ import annotations

from devtools.localkube.images import load_images
from images.builder.build import build_image


def in_cluster(name: str, **versions: str) -> str:
    """Build one of this repository's images, load it into the cluster, and return its reference.

    Do nothing if the image is already built and in the cluster.

    versions: versions that replace the defaults, as `--set` does.
    """
    image = build_image(name, overrides=versions)
    load_images(image.reference)
    return image.reference
