"""The images in an archive, and the names by which Kubernetes knows images."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.common.errors import LocalkubeError


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


def read_archive(archive: Path) -> list[Image]:
    """The images of a docker archive or an OCI archive. Raises LocalkubeError when the file is
    neither, or has an image without a name.
    """
    try:
        with tarfile.open(archive) as tar:
            images = _images(tar)
    except tarfile.TarError as error:
        raise LocalkubeError(
            f"{archive} is not a tar archive: {error}", "give an image archive"
        ) from error
    if images is None:
        raise LocalkubeError(
            f"{archive} has neither manifest.json (docker) nor index.json (OCI)",
            "make one with `buildah push IMAGE docker-archive:FILE` or `docker save`",
        )
    unnamed = [image.id for image in images if not image.names]
    if unnamed or not images:
        raise LocalkubeError(
            f"{archive} has no image with a name" + f" ({unnamed[0]} has none)" * bool(unnamed),
            "export the image by name and tag, not by id: pods refer to it by name",
        )
    return images


def _images(tar: tarfile.TarFile) -> list[Image] | None:
    members = {member.name.removeprefix("./"): member for member in tar}
    if "manifest.json" in members:
        return [_docker_image(entry) for entry in _member(tar, members, "manifest.json")]
    if "index.json" in members:
        index = _member(tar, members, "index.json")
        return [_oci_image(tar, members, entry) for entry in index["manifests"]]
    return None


def _docker_image(entry: dict[str, Any]) -> Image:
    # Config is HEX.json, or blobs/sha256/HEX in an archive that has both formats at once.
    digest = Path(entry["Config"]).name.removesuffix(".json")
    names = [full_name(tag) for tag in entry.get("RepoTags") or ()]
    return Image(f"sha256:{digest}", tuple(dict.fromkeys(names)))


def _oci_image(
    tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], entry: dict[str, Any]
) -> Image:
    manifest = _member(tar, members, "blobs/" + entry["digest"].replace(":", "/"))
    if "config" not in manifest:
        raise LocalkubeError(
            f"{tar.name!s} has images for several platforms", "export the image of one platform"
        )
    notes = entry.get("annotations", {})
    name = notes.get("io.containerd.image.name") or notes.get("org.opencontainers.image.ref.name")
    return Image(manifest["config"]["digest"], (full_name(name),) if name else ())


def _member(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], name: str) -> Any:
    file = tar.extractfile(members[name])
    if file is None:
        raise LocalkubeError(f"{name} in {tar.name!s} is not a file", "export the image again")
    return json.load(file)
