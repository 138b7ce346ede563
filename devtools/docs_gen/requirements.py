"""Write requirements/runtime.in, from which the lock is compiled, from the dependencies of hvdchart
in pyproject.toml. pip-tools and Dependabot read lists of requirements beside the lock.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from devtools.common.repository import ROOT

_HEAD = (
    "# Written by `make generate`: the dependencies in pyproject.toml, with their reasons there.\n"
)


def generated_texts() -> dict[Path, str]:
    """Return the text of requirements/runtime.in by its path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = "".join(f"{dependency}\n" for dependency in project["dependencies"])
    return {ROOT / "requirements" / "runtime.in": f"{_HEAD}{lines}"}
