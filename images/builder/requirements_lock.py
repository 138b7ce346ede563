"""Writes the hash-locked requirements of an image from its .in files and versions.yaml."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from string import Template

from devtools.common.cache import cache_dir, content_key
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.ui import step
from hvdchart.files import write_atomically
from images.builder.catalogue import Image, Lock
from images.builder.mirror_settings import index_options
from images.builder.parameters import apply_condition

# tf-keras asks for this package, which TensorFlow for CPUs is not by name.
_NO_TENSORFLOW = "tensorflow; sys_platform == 'never'\n"


class _Pinned(Template):
    # Names of packages may hold hyphens and digits.
    idpattern = "[a-z][a-z0-9-]*"


def fill_in_parameters(source: Path, parameters: Mapping[str, str]) -> str:
    """Return the text of a .in file with ${name} replaced by parameters.

    Lines whose condition, ` if KEY=VALUE`, is false are left out. Raises DevtoolsError for an
    unknown name.
    """
    try:
        lines = [apply_condition(line, parameters) for line in source.read_text().splitlines()]
        text = "\n".join(line for line in lines if line is not None) + "\n"
        return _Pinned(text).substitute(parameters)
    except (KeyError, ValueError) as error:
        raise DevtoolsError(
            f"{source}: {error} is not a parameter of this image",
            f"use one of {', '.join(parameters)}",
        ) from error


def tree_lock(source: Path) -> Path:
    """Return the lock of an .in file for the default parameters, beside it in the tree."""
    return source.with_suffix(".txt")


def lock_file(image: Image, source: Path) -> Path:
    """Return the lock of an .in file for the image's parameters.

    It is the tree's lock if the defaults give the same text, else one in the cache, under a key of
    everything that it is made from.
    """
    text = fill_in_parameters(source, image.parameters)
    defaults = image.defaults
    python = image.parameters["python"]
    # A lock without dependencies serves every Python: _compile.
    any_python = image.locks[source] is Lock.ALONE or python == defaults["python"]
    if any_python and text == fill_in_parameters(source, defaults):
        return tree_lock(source)
    key = content_key([], text, python, image.locks[source].value)
    return cache_dir() / "locks" / f"{image.name}-{source.stem}-{key}.txt"


def stale_locks(image: Image) -> list[str]:
    """Return a sentence for each version that .in files pin and the tree's locks do not.

    With such a lock, the image would have another version than its reference names.
    """
    problems = []
    for source in image.locks:
        lock = lock_file(image, source)
        if lock != tree_lock(source):
            continue
        pinned = set(_pins(lock.read_text())) if lock.exists() else set()
        for pin in _pins(fill_in_parameters(source, image.parameters)):
            if pin not in pinned:
                problems.append(f"{lock} does not hold {pin}")
    return problems


def write_locks(image: Image) -> list[Path]:
    """Write all locks of an image; return their paths.

    Raises DevtoolsError if its versions exclude each other.
    """
    return [_write(image, source) for source in image.locks]


def write_missing_locks(image: Image) -> None:
    """Write the locks in the cache that no earlier build has written."""
    for source in image.locks:
        lock = lock_file(image, source)
        if lock != tree_lock(source) and not lock.exists():
            with step(f"lock {source.name} of {image.name} for {image.reference}"):
                _write(image, source)


def _write(image: Image, source: Path) -> Path:
    target = lock_file(image, source)
    target.parent.mkdir(parents=True, exist_ok=True)
    alone = ["--no-deps"] if image.locks[source] is Lock.ALONE else []
    text = fill_in_parameters(source, image.parameters)
    write_atomically(target, _compile(text, image.parameters["python"], *alone))
    return target


def _pins(text: str) -> list[str]:
    """Return NAME==VERSION of each line that has one, without extras, as in a lock."""
    lines = [line.split()[0] for line in text.splitlines() if "==" in line and line[:1].isalnum()]
    return [re.sub(r"\[.*\]", "", line) for line in lines]


def _compile(text: str, python: str, *more: str) -> str:
    """Resolve requirements with uv, which can do it for a Python that is not installed.

    A lock has the hashes of all files of a release, so that a lock without dependencies is valid
    for every Python.
    """
    options = "--quiet --no-config --generate-hashes --no-strip-markers --no-header --no-annotate"
    command = [sys.executable, "-m", "uv", "pip", "compile", *options.split()]
    # Debian 11's C library is older than that of all bases.
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_31"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        overrides.write(_NO_TENSORFLOW if "tensorflow-cpu" in text else "")
        overrides.flush()
        more = (*more, "--override", overrides.name)
        return read_output(
            [*command, *more, *index_options(), "-"],
            remedy="choose versions that work together",
            input=text,
        )
