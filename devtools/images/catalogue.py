"""versions.yaml as checked, frozen values: what each image is made of and what it is called."""

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
from devtools.images.parameters import Option, Row, choose, read_bases, read_options, read_rows

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "images" / "versions.yaml"
_REQUIRED = {"reference", "context", "contents", "dockerfile", "versions"}
_OF_A_BASE = {"base", "suite", "framework", "features", "packages", "options", "combinations"}
_KEYS = _REQUIRED | _OF_A_BASE | {"from", "locks", "tested"}
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)*")
Kind = TypeVar("Kind", bound=StrEnum)


class Lock(StrEnum):
    """How a hash-locked requirements file is made from its .in file."""

    COMPLETE = "with what it needs"
    ALONE = "alone"
    SOURCE = "alone, as source"


class When(StrEnum):
    """When an image is built and tested."""

    ALWAYS = "in every run"
    # Too long for that: `python -m images prove` leaves a proof in the image's folder.
    APART = "apart"


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
    defaults: Mapping[str, str]  # of all parameters, as the file has them
    options: Mapping[str, str] = field(default_factory=dict)  # chosen words, by name
    parent: str | None = None  # the image of ours that it is built from
    base: str | None = None  # else the public image
    suite: str | None = None  # and the release to make one of where that cannot be had
    framework: str | None = None  # the module that Horovod is compiled for, if it is
    features: tuple[str, ...] = ()  # of mpi, gloo, nccl: what it is compiled with
    packages: tuple[str, ...] = ()  # of the release, that every rank needs
    choices: Mapping[str, Option] = field(default_factory=dict)
    combinations: tuple[Row, ...] = ()  # what goes together; empty when nobody said
    tested: When = When.ALWAYS

    @property
    def parameters(self) -> dict[str, str]:
        """All that `--set` may change, as chosen."""
        suite = {"suite": self.suite} if self.suite else {}
        return {**suite, **self.versions, **self.options}

    @property
    def folder(self) -> Path:
        """What this image alone is built from, where the layout is the usual one."""
        return self.context / self.name


def load_catalogue(
    overrides: Mapping[str, str] | None = None,
    file: Path = FILE,
    root: Path = ROOT,
    target: str | None = None,
    *,
    untested: bool = False,
) -> dict[str, Image]:
    """All images by name, parents first. `overrides` are parameters that replace those of the file,
    for image `target` and what it is built from, or for every image that has them. `untested` takes
    what is not among the combinations that are known to work.

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
    bases = read_bases(f"{file}: bases", document.get("bases", {}))
    chain = _chain(entries, target)
    images: dict[str, Image] = {}
    for name, written in entries.items():
        where = f"{file}: images.{name}"
        if not isinstance(written, dict):
            raise ImageError(f"{where} is {written!r}, expected a mapping", "see images/README.md")
        entry = _usual(name, written, shared) if "framework" in written else written
        _check_keys(where, entry, images)
        parent = images.get(entry.get("from", ""))
        wanted = dict(overrides or {}) if not chain or name in chain else {}
        if untested:
            entry = {key: value for key, value in entry.items() if key != "combinations"}
        images[name] = _image(name, entry, parent, wanted, where, root, bases)
    known = {key for name in chain or images if name in images for key in images[name].parameters}
    for key in sorted(set(overrides or {}) - known):
        whose = f"{target} has no" if chain else "no image has"
        raise ImageError(
            f"--set {key}: {whose} such parameter", f"use one of {', '.join(sorted(known))}"
        )
    return images


def _chain(entries: Mapping[str, Any], target: str | None) -> list[str]:
    """The image and what it is built from, in turn; nothing when there is no such image."""
    chain: list[str] = []
    while target is not None and isinstance(entries.get(target), dict) and target not in chain:
        chain.append(target)
        target = entries[target].get("from")
    return chain


def find(images: Mapping[str, Image], name: str) -> Image:
    """Raises ImageError naming the images there are."""
    if name not in images:
        raise ImageError(f"{name}: no such image", f"use one of {', '.join(images)}")
    return images[name]


def _check_keys(where: str, entry: Mapping[str, Any], earlier: Mapping[str, Image]) -> None:
    keys = {str(key) for key in entry}
    wrong = sorted(keys - _KEYS) or sorted(_REQUIRED - keys)
    if wrong:
        problem = "has unknown keys" if keys - _KEYS else "lacks keys"
        raise ImageError(f"{where} {problem}: {', '.join(wrong)}", f"known: {sorted(_KEYS)}")
    if ("from" in entry) == ("base" in entry):
        raise ImageError(f"{where} needs either `from` or `base`", "name an image above, or a base")
    if "from" in entry and entry["from"] not in earlier:
        raise ImageError(f"{where}.from: {entry['from']} is no image above it", "order the images")
    if "from" in entry and keys & _OF_A_BASE:
        raise ImageError(
            f"{where} has `from` and {', '.join(sorted(keys & _OF_A_BASE))}",
            "say that of the image it is built from",
        )


def _image(
    name: str,
    entry: Mapping[str, Any],
    parent: Image | None,
    overrides: Mapping[str, str],
    where: str,
    root: Path,
    bases: Mapping[str, str],
) -> Image:
    versions = {
        key: _version(f"{where}.versions.{key}", value) for key, value in entry["versions"].items()
    }
    options = read_options(f"{where}.options", entry.get("options", {}))
    own = {**versions, **{key: option.default for key, option in options.items()}}
    if "suite" in entry:
        own = {"suite": entry["suite"], **own}
    wanted = {
        key: _wanted(f"--set {key}", value, key, options)
        for key, value in overrides.items()
        if key in own
    }
    rows = read_rows(f"{where}.combinations", entry.get("combinations", []), own, options)
    chosen = choose(name, own, rows, wanted)
    inherited = parent.parameters if parent else {}
    defaults = {**(parent.defaults if parent else {}), **own}
    parameters = {**inherited, **chosen}
    all_options = {*options, *(parent.options if parent else ())}
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
        versions={
            key: value
            for key, value in parameters.items()
            if key not in all_options and key != "suite"
        },
        defaults=defaults,
        options={key: parameters[key] for key in parameters if key in all_options},
        parent=parent.name if parent else None,
        base=_base(entry["base"], parameters, bases) if parent is None else None,
        suite=parameters.get("suite"),
        framework=entry.get("framework"),
        features=tuple(entry.get("features", ())),
        packages=_packages(f"{where}.packages", entry.get("packages", {}), parameters),
        choices=options,
        combinations=tuple(rows),
        tested=_one_of(When, f"{where}.tested", entry.get("tested", When.ALWAYS)),
    )


def _base(template: str, parameters: Mapping[str, str], bases: Mapping[str, str]) -> str:
    """The public image; that of `bases` for a release which is not Debian's."""
    return bases.get(parameters.get("suite", "")) or Template(template).substitute(parameters)


def _reference(
    template: str,
    parameters: Mapping[str, str],
    defaults: Mapping[str, str],
    overrides: Mapping[str, str],
) -> str:
    """repository:tag; what was set to another value than the default and is not in it is added."""
    told = [
        f"-{key}-{parameters[key]}".replace(",", "-")
        for key in overrides
        if key in defaults and defaults[key] != parameters[key] and f"${{{key}}}" not in template
    ]
    return Template(template).substitute(parameters) + "".join(sorted(told))


def _packages(
    where: str, written: Mapping[str, list[str]], parameters: Mapping[str, str]
) -> tuple[str, ...]:
    """Debian's packages: those of `always` and those under a `KEY=VALUE` that was chosen."""
    found: list[str] = []
    for condition, packages in written.items():
        key, _, value = condition.partition("=")
        if condition != "always" and key not in parameters:
            raise ImageError(
                f"{where}.{condition}: {key} is no parameter", f"use {', '.join(parameters)}"
            )
        if condition == "always" or parameters[key] == value:
            found += packages
    return tuple(sorted(found))


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


def _wanted(said: str, value: str, key: str, options: Mapping[str, Option]) -> str:
    if key in options:
        return options[key].chosen(said, value)
    return value if key == "suite" else _version(said, value)


def _one_of(kinds: type[Kind], where: str, written: object) -> Kind:
    try:
        return kinds(str(written))
    except ValueError:
        known = ", ".join(repr(kind.value) for kind in kinds)
        raise ImageError(f"{where} is {written!r}", f"write one of {known}") from None
