"""Reads versions.yaml into checked, frozen values: what each image is made of and its reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Any

from ruamel.yaml import YAML

from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from images.builder.parameters import (
    ParameterOption,
    Row,
    choose_parameters,
    read_option,
    read_rows,
    read_words,
)

FILE = ROOT / "images" / "versions.yaml"
_KEYS = {
    "reference",
    "context",
    "contents",
    "dockerfile",
    "versions",
    "from",
    "framework",
    "features",
    "packages",
    "environment",
    "options",
    "locks",
    "tested",
}


class Lock(StrEnum):
    """How a hash-locked requirements file is made from its .in file."""

    COMPLETE = "with dependencies"
    ALONE = "without dependencies"


class When(StrEnum):
    """When an image is built and tested."""

    ALWAYS = "in every run"
    # It would take too long: `python -m images test` writes the results into the image's folder.
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
    suites: tuple[str, ...] = ()  # all releases that have a base, the oldest C library first
    framework: str | None = None  # the module that Horovod is compiled for
    features: tuple[str, ...] = ()  # of mpi, gloo, nccl: what Horovod is compiled with
    packages: tuple[str, ...] = ()  # of the release, that every rank needs
    environment: tuple[str, ...] = ()  # NAME=VALUE, beside what the Dockerfile sets
    choices: Mapping[str, ParameterOption] = field(default_factory=dict)
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
    allows_untested: bool = False,
) -> dict[str, Image]:
    """Return all images by name, parents first.

    overrides: parameters that replace those of the file, for image `target` and its ancestors, or
    for every image that has them.
    allows_untested: accept versions that are in no row.

    Raises DevtoolsError when the file or an override is malformed.
    """
    document = YAML(typ="safe").load(file)
    entries = document["images"]
    source = _Source(file, root, document["bases"], document.get("versions", {}), allows_untested)
    chain = _ancestry(entries, target)
    images: dict[str, Image] = {}
    for name, written in entries.items():
        entry = _with_usual_layout(name, written, root) if "framework" in written else written
        parent = images.get(entry.get("from", ""))
        wanted = dict(overrides or {}) if not chain or name in chain else {}
        images[name] = source.read_image(name, entry, parent, wanted)
    parameters = {
        key for name in chain or images if name in images for key in images[name].parameters
    }
    for key in sorted(set(overrides or {}) - parameters):
        whose = f"{target} has no" if chain else "no image has"
        raise DevtoolsError(
            f"--set {key}: {whose} such parameter", f"use one of {', '.join(sorted(parameters))}"
        )
    return images


def _ancestry(entries: Mapping[str, Any], target: str | None) -> list[str]:
    """Return the image and its ancestors, by `from`; empty if there is no such image."""
    chain: list[str] = []
    while target is not None and target in entries:
        if target in chain:
            raise DevtoolsError(
                f"{target}: `from` leads back to it", "let an image build on others only"
            )
        chain.append(target)
        target = entries[target].get("from")
    return chain


def find_image(images: Mapping[str, Image], name: str) -> Image:
    """Return the image of this name.

    Raises DevtoolsError, which lists the images, if there is none.
    """
    if name not in images:
        raise DevtoolsError(f"{name}: no such image", f"use one of {', '.join(images)}")
    return images[name]


def _with_usual_layout(name: str, entry: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return an entry with a framework, completed with the usual places of its files."""
    folder = f"images/{name}"
    locks = {
        f"{folder}/requirements.in": Lock.COMPLETE.value,
        # Compiled from source; requirements.in has its dependencies.
        "images/common/horovod.in": Lock.ALONE.value,
        "images/common/wheel.in": Lock.ALONE.value,
    }
    if (root / folder / "toolkit.in").exists():
        locks[f"{folder}/toolkit.in"] = Lock.COMPLETE.value
    # Where the toolchain.py of its folder finds CUDA's compiler.
    nvidia = ["images/nvidia"] if "nccl" in entry.get("features", ()) else []
    return {
        "context": "images",
        "contents": ["images/common", folder, *nvidia],
        "dockerfile": "images/common/Dockerfile",
        "locks": locks,
        **entry,
    }


@dataclass(frozen=True)
class _Parameters:
    """What `--set` can change of an image, beside the parameters of its parent."""

    options: Mapping[str, ParameterOption]
    combinations: tuple[Row, ...]
    defaults: Mapping[str, str]
    chosen: Mapping[str, str]


@dataclass(frozen=True)
class _Source:
    """What all entries of a versions.yaml are read with."""

    file: Path
    root: Path
    bases: Mapping[str, str]
    shared: Mapping[str, str]  # versions of all images that Horovod is compiled in
    allows_untested: bool

    def read_image(
        self,
        name: str,
        entry: Mapping[str, Any],
        parent: Image | None,
        overrides: Mapping[str, str],
    ) -> Image:
        place = f"{self.file}: images.{name}"
        self._check(place, entry, parent)
        own_parameters = self._read_parameters(name, place, entry, overrides)
        parameters = {**(parent.parameters if parent else {}), **own_parameters.chosen}
        defaults = {**(parent.defaults if parent else {}), **own_parameters.defaults}
        options = {*own_parameters.options, *(parent.options if parent else ())}
        environment = entry.get("environment", {})
        return Image(
            name=name,
            reference=_reference(entry["reference"], parameters, defaults, overrides),
            context=self.root / entry["context"],
            contents=tuple(self.root / path for path in entry["contents"]),
            dockerfile=self.root / entry["dockerfile"],
            locks={self.root / path: Lock(kind) for path, kind in entry.get("locks", {}).items()},
            versions={
                name: value for name, value in parameters.items() if name not in {*options, "suite"}
            },
            defaults=defaults,
            options={key: value for key, value in parameters.items() if key in options},
            parent=parent.name if parent else None,
            base=None if parent else self._base(place, parameters.get("suite")),
            suite=parameters.get("suite"),
            suites=tuple(self.bases),
            framework=entry.get("framework"),
            features=tuple(entry.get("features", ())),
            packages=tuple(sorted(entry.get("packages", ()))),
            environment=tuple(f"{key}={value}" for key, value in environment.items()),
            choices=own_parameters.options,
            combinations=own_parameters.combinations,
            tested=When(entry.get("tested", When.ALWAYS)),
        )

    def _check(self, place: str, entry: Mapping[str, Any], parent: Image | None) -> None:
        if wrong := sorted(set(entry) - _KEYS):
            keys = ", ".join(sorted(_KEYS))
            raise DevtoolsError(f"{place} has unknown keys: {', '.join(wrong)}", f"use {keys}")
        if "from" in entry and parent is None:
            raise DevtoolsError(
                f"{place}.from is {entry['from']!r}, and no image above has that name",
                "put the image that it builds on above it",
            )

    def _read_parameters(
        self, name: str, place: str, entry: Mapping[str, Any], overrides: Mapping[str, str]
    ) -> _Parameters:
        versions = entry["versions"]
        listed = isinstance(versions, list)
        shared = self.shared if "framework" in entry else {}
        rows = tuple(read_rows(f"{place}.versions", versions if listed else [versions], shared))
        options = {
            key: read_option(f"{place}.options.{key}", value)
            for key, value in entry.get("options", {}).items()
        }
        defaults = {key: values[0] for key, values in rows[0].items()} if rows else {}
        defaults |= {key: option.default for key, option in options.items()}
        wanted = {
            key: _check_override(f"--set {key}", value, options.get(key))
            for key, value in overrides.items()
            if key in defaults
        }
        combinations = rows if listed else ()
        chosen = choose_parameters(
            name, defaults, combinations, wanted, allows_untested=self.allows_untested
        )
        return _Parameters(options, combinations, defaults, chosen)

    def _base(self, place: str, suite: str | None) -> str:
        if suite is None or suite not in self.bases:
            raise DevtoolsError(
                f"{place}: suite {suite!r} has no base",
                f"use one of {', '.join(self.bases)}, or add its public image to `bases`",
            )
        return self.bases[suite]


def _reference(
    template: str,
    parameters: Mapping[str, str],
    defaults: Mapping[str, str],
    overrides: Mapping[str, str],
) -> str:
    """Return repository:tag, with each override appended that is no default and not in the tag."""
    suffixes = [
        f"-{key}-{parameters[key]}".replace(",", "-")
        for key in overrides
        if key in defaults and defaults[key] != parameters[key] and f"${{{key}}}" not in template
    ]
    return Template(template).substitute(parameters) + "".join(sorted(suffixes))


def _check_override(place: str, value: str, option: ParameterOption | None) -> str:
    if option is not None:
        return option.check(place, value)
    return read_words(place, value)[0]
