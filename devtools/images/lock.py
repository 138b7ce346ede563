"""Writes the hash-locked requirements of an image from its .in files and versions.yaml."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from devtools.common.cache import cache_dir, content_key
from devtools.common.errors import ImageError
from devtools.common.ui import step
from devtools.images.catalogue import Image, Lock
from devtools.images.machine import index_options
from devtools.images.parameters import selected


class _Pinned(Template):
    # Names of packages may hold hyphens and digits.
    idpattern = "[a-z][a-z0-9-]*"


def filled_in(source: Path, parameters: Mapping[str, str]) -> str:
    """The text of a .in file with ${name} replaced by parameters, and without the lines that are
    for another choice: those that end in `# only: KEY=VALUE`. Raises ImageError for an unknown
    name.
    """
    try:
        lines = [selected(line, parameters) for line in source.read_text().splitlines()]
        text = "\n".join(line for line in lines if line is not None) + "\n"
        return _Pinned(text).substitute(parameters)
    except (KeyError, ValueError) as error:
        raise ImageError(
            f"{source}: {error} is no parameter of this image", f"known: {', '.join(parameters)}"
        ) from error


def tree_lock(source: Path) -> Path:
    """The lock of an .in file in the tree, which is for the default parameters."""
    return source.with_suffix(".txt")


def lock_file(image: Image, source: Path) -> Path:
    """Where the lock of an .in file is for the image's parameters: in the tree for the defaults,
    else in the cache, by all that it is made from.
    """
    text = filled_in(source, image.parameters)
    defaults = image.defaults
    python = image.parameters["python"]
    if (text, python) == (filled_in(source, defaults), defaults["python"]):
        return tree_lock(source)
    key = content_key([], text, python, image.locks[source].value)
    return cache_dir() / "locks" / f"{image.name}-{source.stem}-{key}.txt"


def stale_locks(image: Image) -> list[str]:
    """What the image's locks in the tree do not hold of what its .in files and parameters pin; one
    sentence each.

    A lock that pins another version would be built and called by the wrong name.
    """
    found = []
    for source in image.locks:
        lock = lock_file(image, source)
        if lock != tree_lock(source):
            continue
        pinned = set(_pins(lock.read_text())) if lock.exists() else set()
        for pin in _pins(filled_in(source, image.parameters)):
            if pin not in pinned:
                found.append(f"{lock} does not hold {pin}")
    return found


def write_locks(image: Image) -> list[Path]:
    """Makes the image's locks anew. Raises ImageError when the versions cannot be had together."""
    return [_write(image, source) for source in image.locks]


def write_missing_locks(image: Image) -> None:
    """Makes the locks of parameters that are not the defaults, unless an earlier build did."""
    for source in image.locks:
        lock = lock_file(image, source)
        if lock != tree_lock(source) and not lock.exists():
            with step(f"lock {source.name} of {image.name} for {image.reference}"):
                _write(image, source)


def _write(image: Image, source: Path) -> Path:
    target = lock_file(image, source)
    kind = image.locks[source]
    python = image.parameters["python"]
    text = filled_in(source, image.parameters)
    if kind is Lock.SOURCE:
        locked = _source_alone(text, source)
    else:
        locked = _compile(text, python, *(["--no-deps"] if kind is Lock.ALONE else []))
    target.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a build takes what is there.
    partial = target.with_suffix(".partial")
    partial.write_text(locked)
    partial.rename(target)
    return target


def _pins(text: str) -> list[str]:
    """NAME==VERSION of each line that has one, without the extras that a lock has in full."""
    lines = [line.split()[0] for line in text.splitlines() if "==" in line and line[:1].isalnum()]
    return [re.sub(r"\[.*\]", "", line) for line in lines]


def _compile(text: str, python: str, *more: str) -> str:
    """What `text` needs, all of it, for that Python on this platform: uv resolves for Pythons that
    are not here. The hashes are of all files of a release, so that a lock of what stands alone
    serves each Python.
    """
    options = "--quiet --no-config --generate-hashes --no-strip-markers --no-header --no-annotate"
    command = [sys.executable, "-m", "uv", "pip", "compile", *options.split()]
    # Debian 11's C library: older than that of any of the images' bases.
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_31"]
    return _run([*command, *more, *index_options(), "-"], text)


def _source_alone(text: str, source: Path) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(text)
        requirements.flush()
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--no-deps", "--report", "-", "--requirement", requirements.name, "--no-binary=:all:",
            "--no-build-isolation",
        ]  # fmt: skip
        report: dict[str, Any] = json.loads(_run(command))
    lines = [f"# From {source.name}, by `python -m images lock`."]
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}")
    return "\n".join(lines) + "\n"


def _run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(
            f"`{' '.join(command)}` failed (status {done.returncode}): "
            f"{done.stderr.strip()[-2000:]}",
            "choose versions that go together",
        )
    return done.stdout
