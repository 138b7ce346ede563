"""Plans distributed Horovod training on Kubernetes: from a spec to values of the chart.

    from hvdchart import load_spec, make_plan, render_values

    plan = make_plan(load_spec("values/xeon-4.spec.yaml", settings=["nodes.0.count=8"]))
    print(plan.ranks, plan.warnings)
    print(render_values(plan))

These functions use no network, no cluster and no other process; `launch` calls a function on the
ranks of a cluster. See docs/library.md and docs/notebook.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvdchart.calls.launcher import Launcher, launch
    from hvdchart.errors import (
        CallError,
        FileError,
        HvdchartError,
        RunFailedError,
        SpecError,
        TimeLimitError,
        ValuesError,
    )
    from hvdchart.plan.model import GroupPlan, Plan
    from hvdchart.plan.planner import make_plan
    from hvdchart.plan.rules import Reason
    from hvdchart.spec.load import checked_spec, load_spec, parse_spec
    from hvdchart.spec.model import (
        Elastic,
        HorovodSettings,
        Image,
        Launch,
        Nfs,
        NodeGroup,
        Rdma,
        Reserved,
        Spec,
        Toleration,
        Train,
        Tuning,
        Volume,
    )
    from hvdchart.values.check import checked_values
    from hvdchart.values.render import render_values

# The distribution's version, too: pyproject.toml reads it here.
__version__ = "0.2.0"

__all__ = [
    "CallError",
    "Elastic",
    "FileError",
    "GroupPlan",
    "HorovodSettings",
    "HvdchartError",
    "Image",
    "Launch",
    "Launcher",
    "Nfs",
    "NodeGroup",
    "Plan",
    "Rdma",
    "Reason",
    "Reserved",
    "RunFailedError",
    "Spec",
    "SpecError",
    "TimeLimitError",
    "Toleration",
    "Train",
    "Tuning",
    "ValuesError",
    "Volume",
    "__version__",
    "checked_spec",
    "checked_values",
    "launch",
    "load_spec",
    "make_plan",
    "parse_spec",
    "render_values",
]

# The modules of the names. Each is imported when it is first used: a command such as `status` needs
# none of them, and they take 0.2 s.
_NAMES = {
    "hvdchart.calls.launcher": ("Launcher", "launch"),
    "hvdchart.errors": (
        *("CallError", "FileError", "HvdchartError", "RunFailedError", "SpecError"),
        *("TimeLimitError", "ValuesError"),
    ),
    "hvdchart.plan.model": ("GroupPlan", "Plan"),
    "hvdchart.plan.planner": ("make_plan",),
    "hvdchart.plan.rules": ("Reason",),
    "hvdchart.spec.load": ("checked_spec", "load_spec", "parse_spec"),
    "hvdchart.spec.model": (
        *("Elastic", "HorovodSettings", "Image", "Launch", "Nfs", "NodeGroup", "Rdma", "Reserved"),
        *("Spec", "Toleration", "Train", "Tuning", "Volume"),
    ),
    "hvdchart.values.check": ("checked_values",),
    "hvdchart.values.render": ("render_values",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
