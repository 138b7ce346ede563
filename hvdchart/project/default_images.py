"""Chooses the public image of a program that names none, by the modules that it imports."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdchart.spec.load import load_tree

_TABLE = Path(__file__).with_name("images.yaml")
# The requirements.txt with which an image without an MPI gets one.
MPI_REQUIREMENTS = Path(__file__).with_name("mpi-requirements.txt")


@dataclass(frozen=True)
class DefaultImage:
    """A public image, why it is used, what to set with it, and what its user should know.

    `has_mpi` says whether the ranks are started by mpirun, which the image or requirements have.
    """

    reference: str
    why: str
    has_mpi: bool
    settings: tuple[str, ...]
    remark: str


def default_image(uses: Iterable[tuple[str, str]], *, has_gpus: bool) -> DefaultImage:
    """The image of a program: `uses` are the modules that it imports, each with the place."""
    first: dict[str, str] = {}
    for place, module in uses:
        first.setdefault(module.partition(".")[0], place)
    table: Any = load_tree(_TABLE).plain
    for entry in table:
        found = [name for name in entry["modules"] if name in first]
        if found or not entry["modules"]:
            break
    why = f"{first[found[0]]} uses {found[0]}" if found else "no framework is imported"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return DefaultImage(
        entry["gpu" if has_gpus else "cpu"].replace("${python}", version),
        why,
        bool(entry.get("has-mpi")),
        tuple(entry.get("settings", ())),
        entry.get("remark", ""),
    )
