"""Reads versions.yaml into checked, frozen values: what each image is made of and its reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from devtools.common.errors import ImageError
from devtools.images.parameters import (
    Option,
    Row,
    choose,
    read_options,
    read_rows,
    read_words,
    select,
)

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "images" / "versions.yaml"
_REQUIRED = {"reference", "context", "contents", "dockerfile", "versions"}
_KEYS = _REQUIRED | {
    "from", "framework", "features", "packages", "environment", "options", "locks", "tested"
}  # fmt: skip
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=[0-9A-Za-z._/:-]+")
_DOCKER_LIBRARY_IMAGE = re.compile(r"[a-z]+:[0-9A-Za-z._-]+")
Kind = TypeVar("Kind", bound=StrEnum)


class Lock(StrEnum):
    """How a hash-locked requirements file is made from its .in file."""

    COMPLETE = "with dependencies"
    ALONE = "without dependencies"
    SOURCE = "source without dependencies"


class When(StrEnum):
    """When an image is built and tested."""

    ALWAYS = "in every run"
    # It would take too long: `python -m images prove` leaves a proof in the image's folder.
    SEPARATELY = "separately"


@dataclass(frozen=True)
class Image:
    """One image of versions.yaml. Paths are absolute."""

    name: str
    reference: str  # repository:tag
    context: Path
    contents: tuple[Path, ...]  # folders of the context that go into the build and into the key
    dockerfile: Path
    locks: Mapping[Path, Lock]  # by .in file
    versions: Mapping[str, str]  # its own and those of its parent
    defaults: Mapping[str, str]  # of all parameters
    options: Mapping[str, str] = field(default_factory=dict)  # as chosen
    parent: str | None = None  # the image of this catalogue that it is built from
    base: str | None = None  # the public image that it is built from, without a parent
    suite: str | None = None  # the release of Debian or Ubuntu
    framework: str | None = None  # the module that Horovod is compiled for
    features: tuple[str, ...] = ()  # of mpi, gloo, nccl: what Horovod is compiled with
    packages: tuple[str, ...] = ()  # of the release, that every rank needs
    environment: tuple[str, ...] = ()  # NAME=VALUE, beside what the Dockerfile sets
    choices: Mapping[str, Option] = field(default_factory=dict)
    combinations: tuple[Row, ...] = ()  # versions that work together; empty: any
    tested: When = When.ALWAYS

    @property
    def parameters(self) -> dict[str, str]:
        """The present values of all that `--set` can change."""
        suite = {"suite": self.suite} if self.suite else {}
        return {**suite, **self.versions, **self.options}

    @property
    def folder(self) -> Path:
        """The folder of an image that Horovod is compiled in."""
        return self.context / self.name


def load_catalogue(
    overrides: Mapping[str, str] | None = None,
    file: Path = FILE,
    root: Path = ROOT,
    target: str | None = None,
    *,
    untested: bool = False,
) -> dict[str, Image]:
    """All images by name, parents first.

    overrides: parameters that replace those of the file, for image `target` and its ancestors, or
    for every image that has them.
    untested: accept versions that are in no row.

    Raises ImageError when the file or an override is malformed.
    """
    try:
        document = YAML(typ="safe").load(file)
    except YAMLError as error:
        raise ImageError(f"{file} is not valid YAML: {error}", "correct the file") from error
    entries = document.get("images") if isinstance(document, dict) else None
    bases = document.get("bases", {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not isinstance(bases, dict):
        raise ImageError(f"{file}: `images` or `bases` is not a mapping", "see images/README.md")
    shared = document.get("versions", {})
    chain = _ancestry(entries, target)
    images: dict[str, Image] = {}
    for name, written in entries.items():
        where = f"{file}: images.{name}"
        if not isinstance(written, dict):
            raise ImageError(f"{where} is {written!r}, expected a mapping", "see images/README.md")
        compiled = "framework" in written
        entry = _with_usual_layout(name, written, root) if compiled else written
        _check_keys(where, entry, images)
        wanted = dict(overrides or {}) if not chain or name in chain else {}
        images[name] = _read_image(
            name, entry, images.get(entry.get("from", "")), wanted, where, root, bases,
            shared if compiled else {}, untested,
        )  # fmt: skip
    known = {key for name in chain or images if name in images for key in images[name].parameters}
    for key in sorted(set(overrides or {}) - known):
        whose = f"{target} has no" if chain else "no image has"
        raise ImageError(
            f"--set {key}: {whose} such parameter", f"use one of {', '.join(sorted(known))}"
        )
    return images


def _ancestry(entries: Mapping[str, Any], target: str | None) -> list[str]:
    """The image and its ancestors, by `from`; empty when there is no such image."""
    chain: list[str] = []
    while target is not None and isinstance(entries.get(target), dict) and target not in chain:
        chain.append(target)
        target = entries[target].get("from")
    return chain


def find(images: Mapping[str, Image], name: str) -> Image:
    """Raises ImageError, listing the images, when there is none of that name."""
    if name not in images:
        raise ImageError(f"{name}: no such image", f"use one of {', '.join(images)}")
    return images[name]


def _with_usual_layout(name: str, entry: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """An entry with a framework, completed with where the files of such images are."""
    folder = f"images/{name}"
    locks = {
        f"{folder}/requirements.in": Lock.COMPLETE.value,
        # Compiled from source; requirements.in has its dependencies.
        "images/common/horovod.in": Lock.SOURCE.value,
    }
    if (root / folder / "toolkit.in").exists():
        locks[f"{folder}/toolkit.in"] = Lock.COMPLETE.value
    return {
        "context": "images",
        "contents": ["images/common", folder],
        "dockerfile": "images/common/Dockerfile",
        "locks": locks,
        **entry,
    }


def _check_keys(where: str, entry: Mapping[str, Any], earlier: Mapping[str, Image]) -> None:
    keys = {str(key) for key in entry}
    wrong = sorted(keys - _KEYS) or sorted(_REQUIRED - keys)
    if wrong:
        problem = "has unknown keys" if keys - _KEYS else "lacks keys"
        raise ImageError(f"{where} {problem}: {', '.join(wrong)}", f"known: {sorted(_KEYS)}")
    if "from" in entry and entry["from"] not in earlier:
        raise ImageError(f"{where}.from: {entry['from']} is not an image above", "order the images")
    if "from" in entry and "framework" in entry:
        raise ImageError(f"{where} has `from` and `framework`", "Horovod is compiled in its parent")


def _read_image(
    name: str,
    entry: Mapping[str, Any],
    parent: Image | None,
    overrides: Mapping[str, str],
    where: str,
    root: Path,
    bases: Mapping[str, object],
    shared: Mapping[str, str],
    untested: bool,
) -> Image:
    versions = entry["versions"]
    listed = isinstance(versions, list)
    rows = read_rows(f"{where}.versions", versions if listed else [versions], shared)
    options = read_options(f"{where}.options", entry.get("options", {}))
    own = {key: values[0] for key, values in rows[0].items()} if rows else {}
    own |= {key: option.default for key, option in options.items()}
    combinations = rows if listed and not untested else []
    wanted = {
        key: _check_override(f"--set {key}", value, options.get(key))
        for key, value in overrides.items()
        if key in own
    }
    chosen = choose(name, own, combinations, wanted)
    parameters = {**(parent.parameters if parent else {}), **chosen}
    defaults = {**(parent.defaults if parent else {}), **own}
    all_options = {*options, *(parent.options if parent else ())}
    packages = [select(line, parameters) for line in entry.get("packages", [])]
    return Image(
        name=name,
        reference=_reference(entry["reference"], parameters, defaults, overrides),
        context=root / entry["context"],
        contents=tuple(root / path for path in entry["contents"]),
        dockerfile=root / entry["dockerfile"],
        locks={
            root / source: _one_of(Lock, f"{where}.locks.{source}", kind)
            for source, kind in entry.get("locks", {}).items()
        },
        versions={k: v for k, v in parameters.items() if k not in all_options and k != "suite"},
        defaults=defaults,
        options={key: value for key, value in parameters.items() if key in all_options},
        parent=parent.name if parent else None,
        base=None if parent else _base(where, parameters.get("suite"), bases),
        suite=parameters.get("suite"),
        framework=entry.get("framework"),
        features=tuple(entry.get("features", ())),
        packages=tuple(sorted(package for package in packages if package)),
        environment=_environment(f"{where}.environment", entry.get("environment", {})),
        choices=options,
        combinations=tuple(combinations),
        tested=_one_of(When, f"{where}.tested", entry.get("tested", When.ALWAYS)),
    )


def _base(where: str, suite: str | None, bases: Mapping[str, object]) -> str:
    """The public image of a release, of Docker's own library."""
    if suite is None:
        raise ImageError(f"{where} has neither `from` nor a `suite` in `versions`", "give it one")
    base = bases.get(suite)
    if not isinstance(base, str) or not _DOCKER_LIBRARY_IMAGE.fullmatch(base):
        raise ImageError(
            f"{where}: bases.{suite} is {base!r}, expected DISTRIBUTION:TAG", "write ubuntu:noble"
        )
    return base


def _environment(where: str, written: object) -> tuple[str, ...]:
    pairs = written.items() if isinstance(written, dict) else [("", "")]
    variables = tuple(f"{name}={value}" for name, value in pairs)
    if not all(map(_VARIABLE.fullmatch, variables)):
        raise ImageError(f"{where} is {written!r}, expected NAME: value", 'write {NAME: "1"}')
    return variables


def _reference(
    template: str,
    parameters: Mapping[str, str],
    defaults: Mapping[str, str],
    overrides: Mapping[str, str],
) -> str:
    """repository:tag, with each override that is not a default and not in the template appended."""
    suffixes = [
        f"-{key}-{parameters[key]}".replace(",", "-")
        for key in overrides
        if key in defaults and defaults[key] != parameters[key] and f"${{{key}}}" not in template
    ]
    return Template(template).substitute(parameters) + "".join(sorted(suffixes))


def _check_override(where: str, value: str, option: Option | None) -> str:
    if option is not None:
        return option.check(where, value)
    return read_words(where, value)[0]


def _one_of(kinds: type[Kind], where: str, written: object) -> Kind:
    try:
        return kinds(str(written))
    except ValueError:
        known = ", ".join(repr(kind.value) for kind in kinds)
        raise ImageError(f"{where} is {written!r}", f"write one of {known}") from None
