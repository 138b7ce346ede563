"""versions.yaml as checked, frozen values: what each image is made of and what it is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from images.errors import ImageError

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_name("versions.yaml")
_REQUIRED = {"reference", "context", "contents", "dockerfile", "versions"}
_KEYS = _REQUIRED | {"from", "base", "suite", "locks", "framework", "features"}
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)*")


class Lock(StrEnum):
    """How a hash-locked requirements file is made from its .in file."""

    COMPLETE = "with what it needs"
    ALONE = "alone"
    SOURCE = "alone, as source"


@dataclass(frozen=True)
class Image:
    """One image of versions.yaml. Paths are absolute."""

    name: str
    reference: str  # repository:tag
    context: Path
    contents: tuple[Path, ...]  # what of the context goes into the build, and so into the key
    dockerfile: Path
    locks: Mapping[Path, Lock]  # by the .in file that each is made from
    versions: Mapping[str, str]  # its own and those of the image it is built from
    parent: str | None = None  # the image of ours that it is built from
    base: str | None = None  # else the public image
    suite: str | None = None  # and the Debian release to make one of where that cannot be had
    framework: str | None = None  # the module that Horovod is compiled for, if it is
    features: tuple[str, ...] = ()  # of mpi, gloo, nccl: what it is compiled with

    @property
    def folder(self) -> Path:
        """What this image alone is built from, where the layout is the usual one."""
        return self.context / self.name


def load_catalogue(
    overrides: Mapping[str, str] | None = None, file: Path = FILE, root: Path = ROOT
) -> dict[str, Image]:
    """All images by name, parents first. `overrides` are versions that replace those of the file.

    Raises ImageError when the file or an override is not what it should be.
    """
    try:
        document = YAML(typ="safe").load(file)
    except YAMLError as error:
        raise ImageError(f"{file} is no YAML: {error}", "mend the file") from error
    entries = document.get("images") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise ImageError(f"{file} has no mapping `images`", "see images/README.md for its form")
    shared = document.get("versions", {})
    images: dict[str, Image] = {}
    for name, written in entries.items():
        where = f"{file}: images.{name}"
        if not isinstance(written, dict):
            raise ImageError(f"{where} is {written!r}, expected a mapping", "see images/README.md")
        entry = _usual(name, written, shared) if "framework" in written else written
        images[name] = _image(name, entry, images, dict(overrides or {}), where, root)
    known = {key for image in images.values() for key in image.versions}
    for key in sorted(set(overrides or {}) - known):
        raise ImageError(
            f"--set {key}: no image has such a version", f"use one of {', '.join(sorted(known))}"
        )
    return images


def find(images: Mapping[str, Image], name: str) -> Image:
    """Raises ImageError naming the images there are."""
    if name not in images:
        raise ImageError(f"{name}: no such image", f"use one of {', '.join(images)}")
    return images[name]


def _image(
    name: str,
    entry: Mapping[str, Any],
    earlier: Mapping[str, Image],
    overrides: Mapping[str, str],
    where: str,
    root: Path,
) -> Image:
    keys = {str(key) for key in entry}
    wrong = sorted(keys - _KEYS) or sorted(_REQUIRED - keys)
    if wrong:
        problem = "has unknown keys" if keys - _KEYS else "lacks keys"
        raise ImageError(f"{where} {problem}: {', '.join(wrong)}", f"known: {sorted(_KEYS)}")
    parent = entry.get("from")
    if (parent is None) == (entry.get("base") is None):
        raise ImageError(f"{where} needs either `from` or `base`", "name an image above, or a base")
    if parent is not None and parent not in earlier:
        raise ImageError(f"{where}.from: {parent} is no image above it", "order the images")
    versions = dict(earlier[parent].versions) if parent is not None else {}
    for key, value in entry.get("versions", {}).items():
        versions[key] = _version(f"{where}.versions.{key}", overrides.get(key, value))
    context = root / entry["context"]
    return Image(
        name=name,
        reference=Template(entry["reference"]).substitute(versions),
        context=context,
        contents=tuple(root / path for path in entry["contents"]),
        dockerfile=root / entry["dockerfile"],
        locks={
            root / source: _lock(f"{where}.locks.{source}", kind)
            for source, kind in entry.get("locks", {}).items()
        },
        versions=versions,
        parent=parent,
        base=entry.get("base"),
        suite=entry.get("suite"),
        framework=entry.get("framework"),
        features=tuple(entry.get("features", ())),
    )


def _usual(name: str, entry: Mapping[str, Any], versions: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry with a framework, completed by where its files usually are and by the versions that
    all such images share.
    """
    layout = {
        "context": "images",
        "contents": ["images/common", f"images/{name}"],
        "dockerfile": "images/common/Dockerfile",
        "locks": {
            f"images/{name}/requirements.in": Lock.COMPLETE.value,
            # Compiled from source, without what it needs: that is in requirements.in.
            "images/common/horovod.in": Lock.SOURCE.value,
        },
    }
    return {**layout, **entry, "versions": {**versions, **entry.get("versions", {})}}


def _version(where: str, value: object) -> str:
    # YAML reads 3.10 as the number 3.1: a version must be written as text.
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise ImageError(f"{where} is {value!r}, expected a version", 'write it in quotes: "3.11"')
    return value


def _lock(where: str, kind: object) -> Lock:
    try:
        return Lock(str(kind))
    except ValueError:
        known = ", ".join(repr(lock.value) for lock in Lock)
        raise ImageError(f"{where} is {kind!r}", f"write one of {known}") from None
