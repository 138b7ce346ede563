"""Choose the public image of a program without an image, by the modules that it imports."""

from __future__ import annotations

import difflib
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvd_pods.shared.python_packages import PACKAGE_OF_MODULE
from hvdchart.spec.load import load_tree

# The smallest ratio at which two names differ by a typing error.
_MIN_TYPO_RATIO = 0.8
_IMAGES_FILE = Path(__file__).with_name("images.yaml")


@dataclass(frozen=True)
class DefaultImage:
    """A public image, the reason for it, its settings, and a remark for the user.

    `has_mpi` says whether mpirun, which the image or requirements provide, starts the ranks.
    `python` is the image's version, such as (3, 11); None if unknown. `for_callers` is the image
    for a caller with another Python, if there is one. `has` are the well-known modules that it has,
    or may have.
    """

    reference: str
    reason: str
    has_mpi: bool
    settings: tuple[str, ...]
    remark: str
    python: tuple[int, int] | None
    has: frozenset[str]
    for_callers: str = ""

    def lacking(self, modules: Iterable[str], requirements: str = "") -> list[str]:
        """Return the packages with modules that the image lacks, sorted.

        Packages in the text of a requirements.txt are left out.
        """
        used = {step for module in modules for step in _steps(module)}
        packages = {**_table()["packages"], **PACKAGE_OF_MODULE}
        listed = parse_requirements(requirements)
        needed = {packages[module] for module in used & packages.keys() - self.has}
        return sorted(
            package for package in needed if _normal(package.rpartition(" ")[2]) not in listed
        )


def choose_default_image(
    *uses: Iterable[tuple[str, str]], has_gpus: bool, python: tuple[int, int] | None = None
) -> DefaultImage:
    """Return the image of a program; `uses` are the modules that it imports, each with the place.

    Of several, the first with a framework counts. If the framework has an image with Python
    `python`, such as (3, 12), return that one; by default, any version is accepted.
    """
    chosen, reason = _choose_entry(uses)
    version_here = f"{sys.version_info.major}.{sys.version_info.minor}"
    reference = chosen["gpu" if has_gpus else "cpu"].replace("${python}", version_here)
    version = chosen.get("python", "").replace("${python}", version_here)
    wanted = "{}.{}".format(*python) if python else ""
    others = chosen.get("for-python", {})
    if wanted in others:
        reference = others[wanted]
        version = wanted
    major, _, minor = version.partition(".")
    return DefaultImage(
        reference,
        reason,
        bool(chosen.get("has-mpi")),
        tuple(chosen.get("settings", ())),
        chosen.get("remark", ""),
        (int(major), int(minor)) if minor else None,
        frozenset(chosen["has"]),
        chosen.get("for-callers", ""),
    )


def _choose_entry(uses: Iterable[Iterable[tuple[str, str]]]) -> tuple[dict[str, Any], str]:
    """Return the entry of images.yaml for a program that uses these modules, and the reason."""
    *entries, other = _table()["images"]
    for modules in uses:
        places: dict[str, str] = {}
        for place, module in modules:
            places.setdefault(module.partition(".")[0], place)
        for entry in entries:
            if name := next((name for name in entry["modules"] if name in places), ""):
                return entry, f"{places[name]} uses {name}"
    return other, "no framework is imported"


def find_image_python(reference: str) -> tuple[int, int] | None:
    """Return the version of Python of an image that the user named; None if unknown."""
    for entry in _table()["images"]:
        version = entry.get("python", "")
        versions = {entry["cpu"]: version, entry["gpu"]: version}
        versions |= {image: python for python, image in entry.get("for-python", {}).items()}
        major, _, minor = versions.get(reference, "").partition(".")
        if minor.isdecimal():
            return int(major), int(minor)
    return None


def warn_of_misspelt(modules: Iterable[str], who: str = "the script") -> Iterator[str]:
    """Warn of each unknown module whose name differs from a known one by a typing error.

    `who` imports the modules.
    """
    table = _table()
    paths = {*table["packages"], *PACKAGE_OF_MODULE}
    for entry in table["images"]:
        paths.update(entry.get("modules", ()), entry["has"])
    known_modules = {path.partition(".")[0] for path in paths} | sys.stdlib_module_names
    for name in sorted({module.partition(".")[0] for module in modules} - known_modules):
        near = difflib.get_close_matches(name, known_modules, 1, _MIN_TYPO_RATIO)
        if near:
            yield f"{who} imports {name}: did you mean {near[0]}?"


def parse_requirements(requirements: str) -> set[str]:
    """Return the packages in the text of a requirements.txt, normalized as pip does."""
    lines = re.findall(r"^\s*([A-Za-z0-9][-._A-Za-z0-9]*)", requirements, re.MULTILINE)
    return set(map(_normal, lines))


@functools.cache
def _table() -> Any:
    return load_tree(_IMAGES_FILE).plain


def _steps(module: str) -> list[str]:
    """Return a module and the packages that contain it: a contains a.b."""
    names = module.split(".")
    return [".".join(names[:end]) for end in range(1, len(names) + 1)]


def _normal(package: str) -> str:
    """Return the name of a package as pip normalizes it."""
    return re.sub("[-_.]+", "-", package).lower()
