"""Trains one script on many nodes of a Kubernetes cluster: from a spec to values of the chart.

    from hvdchart import load_spec, make_plan, render_values

    plan = make_plan(load_spec("values/xeon-8180-16.spec.yaml", settings=["nodes.0.count=8"]))
    print(plan.ranks, plan.warnings)
    print(render_values(plan))

These functions use no network, no cluster and no other process; `launch` calls a function on the
ranks of a cluster. See docs/python.md.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

# The distribution's version, too: pyproject.toml reads it here.
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Import a name of the library when it is first used. Raises AttributeError for another one.

    A command such as `status` needs none of the names, and their modules take 0.2 s or more.
    """
    if name == "__all__":
        return __dir__()
    module = _modules_by_name().get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    # Python does not call this function again for a name that the module has.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of the library, also those that are not imported yet."""
    return sorted([*_modules_by_name(), "__version__"])


@cache
def _modules_by_name() -> dict[str, str]:
    """Return the module of each name of the library, as `__init__.pyi` lists them."""
    # Imported here because commands use no name of the library.
    import ast

    tree = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [statement for statement in tree.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in imports for alias in line.names}
