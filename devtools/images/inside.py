"""What is in a built image: its list of packages, its layers and their sizes, its files."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.common.errors import ImageError
from devtools.images.build import BuiltImage
from hvdchart.image.engines import run_in

# Where images/common/Dockerfile leaves it.
SBOM = "/usr/local/share/sbom.cdx.json"


def sbom(image: BuiltImage) -> str:
    """The CycloneDX document that was made when the image was built."""
    done = run_in(image.reference, ["cat", SBOM], 0, image.engine.program)
    if done.returncode != 0:
        raise ImageError(
            f"{image.reference} has no {SBOM}: {done.stderr.strip()}",
            "only images with a `framework`, and those built on them, have one",
        )
    return done.stdout


def unpacked_size(image: BuiltImage) -> int:
    """Bytes of all files in an image."""
    du = ["du", "--summarize", "--bytes", "--one-file-system", "/"]
    # Some folders are for their owner alone, empty ones: its exit status tells of those.
    said = run_in(image.reference, du, 0, image.engine.program)
    if not said.stdout.strip():
        raise ImageError(f"{image.reference}: du says nothing: {said.stderr.strip()}", "mend it")
    return int(said.stdout.split()[0])


def python_packages(document: str) -> dict[str, str]:
    """Versions by name, of the Python packages in a CycloneDX document."""
    components = json.loads(document)["components"]
    return {
        component["name"]: component["version"]
        for component in components
        if component["purl"].startswith("pkg:pypi/")
    }


@dataclass(frozen=True)
class Layer:
    made_by: str
    size: int  # bytes of its files, unpacked


def layers(archive: Path) -> list[Layer]:
    """The layers of the image in a docker-archive, the lowest first."""
    with tarfile.open(archive) as outer:
        manifest = _read(outer, "manifest.json")[0]
        config = _read(outer, manifest["Config"])
        made_by = [
            entry.get("created_by", "") for entry in config["history"]
            if not entry.get("empty_layer")
        ]  # fmt: skip
        sizes = [_unpacked(outer, name) for name in manifest["Layers"]]
    return [Layer(text, size) for text, size in zip(made_by, sizes, strict=True)]


def _read(outer: tarfile.TarFile, name: str) -> Any:
    file = outer.extractfile(name)
    if file is None:
        raise ImageError(f"{outer.name!r}: {name} is no file", "make the archive again")
    return json.load(file)


def _unpacked(outer: tarfile.TarFile, name: str) -> int:
    file = outer.extractfile(name)
    with tarfile.open(fileobj=file, mode="r:*") as layer:
        return sum(member.size for member in layer)


def files(archive: Path) -> dict[str, str]:
    """What each path of the image in a docker-archive is, times left out: kind, mode, owner, and a
    file's SHA-256 or where a link leads.
    """
    found: dict[str, str] = {}
    with tarfile.open(archive) as outer:
        for name in _read(outer, "manifest.json")[0]["Layers"]:
            with tarfile.open(fileobj=outer.extractfile(name), mode="r:*") as layer:
                for member in layer:
                    _put(found, layer, member)
    return found


def _put(found: dict[str, str], layer: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    folder, _, base = member.name.rpartition("/")
    # How a layer says that it takes away what a lower one has.
    if base.startswith(".wh."):
        gone = f"{folder}/{base.removeprefix('.wh.')}".lstrip("/")
        for path in [path for path in found if path == gone or path.startswith(gone + "/")]:
            del found[path]
        return
    what = f"{member.type.decode()} {member.mode:o} {member.uid}:{member.gid} {member.linkname}"
    if member.isfile():
        content = layer.extractfile(member)
        if content is not None:
            what += hashlib.sha256(content.read()).hexdigest()
    found[member.name] = what


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """A line for each path that is in one only, or another thing in each."""
    lines = []
    for path in sorted(one.keys() | other.keys()):
        if path not in other:
            lines.append(f"only in the first: {path}")
        elif path not in one:
            lines.append(f"only in the second: {path}")
        elif one[path] != other[path]:
            lines.append(f"differs: {path}")
    return lines
