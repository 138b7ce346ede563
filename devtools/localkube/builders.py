"""The image builders of this machine, and what they hold."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devtools.common.errors import LocalkubeError
from devtools.localkube.archives import full_name


@dataclass(frozen=True)
class Held:
    """An image in a builder's storage. layers: the digests of its layers unpacked, lowest first."""

    builder: str
    reference: str
    id: str
    layers: tuple[str, ...]

    @property
    def name(self) -> str:
        return full_name(self.reference)

    def export_command(self) -> list[str]:
        """Writes the image to standard output as a docker archive."""
        if self.builder == "buildah":
            return ["buildah", "push", self.reference, f"docker-archive:/dev/stdout:{self.name}"]
        if self.builder == "podman":
            return ["podman", "save", "--format=docker-archive", self.reference]
        return ["docker", "save", self.reference]


def find(reference: str) -> Held:
    """Asks Buildah, Podman and Docker in turn. Raises LocalkubeError when none has the image."""
    asked = []
    for builder, (question, read) in _QUESTIONS.items():
        if shutil.which(builder):
            asked.append(builder)
            answer = subprocess.run(
                [builder, *question, reference], check=False, capture_output=True, text=True
            )
            if answer.returncode == 0:
                return read(reference, json.loads(answer.stdout))
    searched = f"asked {', '.join(asked)}" if asked else "no buildah, podman or docker is there"
    raise LocalkubeError(
        f"{reference} is neither a file nor an image on this machine ({searched})",
        "build it first, or give the path of an image archive",
    )


def _from_buildah(reference: str, answer: dict[str, Any]) -> Held:
    layers = answer["OCIv1"]["rootfs"]["diff_ids"]
    return Held("buildah", reference, f"sha256:{answer['FromImageID']}", tuple(layers))


def _from_podman(reference: str, answer: list[dict[str, Any]]) -> Held:
    identity = answer[0]["Id"].removeprefix("sha256:")
    return Held("podman", reference, f"sha256:{identity}", tuple(answer[0]["RootFS"]["Layers"]))


def _from_docker(reference: str, answer: list[dict[str, Any]]) -> Held:
    return Held("docker", reference, answer[0]["Id"], tuple(answer[0]["RootFS"]["Layers"]))


_QUESTIONS: dict[str, tuple[list[str], Callable[[str, Any], Held]]] = {
    "buildah": (["inspect", "--type=image"], _from_buildah),
    "podman": (["image", "inspect"], _from_podman),
    "docker": (["image", "inspect"], _from_docker),
}
