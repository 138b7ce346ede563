"""Writes the hash-locked requirements of an image from its .in files and versions.yaml."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from images.catalogue import Image, Lock
from images.errors import ImageError


class _Pinned(Template):
    # Names of packages may hold a hyphen.
    idpattern = "[a-z][a-z-]*"


def filled_in(source: Path, versions: Mapping[str, str]) -> str:
    """The text of a .in file with ${name} replaced by versions. Raises ImageError for an unknown
    name.
    """
    try:
        return _Pinned(source.read_text()).substitute(versions)
    except (KeyError, ValueError) as error:
        raise ImageError(
            f"{source}: {error} is no version of this image", f"known: {', '.join(versions)}"
        ) from error


def lock_file(source: Path) -> Path:
    return source.with_suffix(".txt")


def stale_locks(image: Image) -> list[str]:
    """What the image's locks do not hold of what its .in files and versions pin; one sentence each.

    A lock that pins another version would be built and called by the wrong name.
    """
    found = []
    for source in image.locks:
        pinned = set(_pins(lock_file(source).read_text())) if lock_file(source).exists() else set()
        for pin in _pins(filled_in(source, image.versions)):
            if pin not in pinned:
                found.append(f"{lock_file(source)} does not hold {pin}")
    return found


def write_locks(image: Image) -> list[Path]:
    """Makes the image's locks anew. Raises ImageError when the versions cannot be had together."""
    wanted = image.versions["python"]
    if not f"{platform.python_version()}.".startswith(f"{wanted}."):
        raise ImageError(
            f"{image.name} is for Python {wanted}, and this is {platform.python_version()}",
            f"lock with Python {wanted}: what a package needs depends on it",
        )
    for source, kind in image.locks.items():
        text = filled_in(source, image.versions)
        if kind is Lock.COMPLETE:
            _compile(text, lock_file(source))
        else:
            lock_file(source).write_text(_alone(text, source, from_source=kind is Lock.SOURCE))
    return [lock_file(source) for source in image.locks]


def _pins(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if "==" in line and line[:1].isalnum()]


def _compile(text: str, target: Path) -> None:
    options = "--quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate"
    quiet_about_machine = "--no-emit-index-url --no-emit-find-links --no-emit-trusted-host"
    command = [
        sys.executable, "-m", "piptools", "compile", *options.split(), *quiet_about_machine.split(),
        "--output-file", str(target), "-",
    ]  # fmt: skip
    _run(command, text)


def _alone(text: str, source: Path, *, from_source: bool) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(text)
        requirements.flush()
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--no-deps", "--report", "-", "--requirement", requirements.name,
        ]  # fmt: skip
        if from_source:
            command += ["--no-binary=:all:", "--no-build-isolation"]
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
