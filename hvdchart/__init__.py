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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hvdchart.calls.caller import Caller as Caller
    from hvdchart.calls.launch import close as close
    from hvdchart.calls.launch import launch as launch
    from hvdchart.errors import CallError as CallError
    from hvdchart.errors import ClusterError as ClusterError
    from hvdchart.errors import FileError as FileError
    from hvdchart.errors import HelmError as HelmError
    from hvdchart.errors import HvdchartError as HvdchartError
    from hvdchart.errors import RunFailedError as RunFailedError
    from hvdchart.errors import SpecError as SpecError
    from hvdchart.errors import TimeLimitError as TimeLimitError
    from hvdchart.errors import ValuesError as ValuesError
    from hvdchart.plan.model import GroupPlan as GroupPlan
    from hvdchart.plan.model import Plan as Plan
    from hvdchart.plan.planner import make_plan as make_plan
    from hvdchart.plan.rules import Reason as Reason
    from hvdchart.spec.load import checked_spec as checked_spec
    from hvdchart.spec.load import load_spec as load_spec
    from hvdchart.spec.load import parse_spec as parse_spec
    from hvdchart.spec.model import HorovodSettings as HorovodSettings
    from hvdchart.spec.model import Image as Image
    from hvdchart.spec.model import Launch as Launch
    from hvdchart.spec.model import Nfs as Nfs
    from hvdchart.spec.model import NodeGroup as NodeGroup
    from hvdchart.spec.model import Rdma as Rdma
    from hvdchart.spec.model import Reserved as Reserved
    from hvdchart.spec.model import Spec as Spec
    from hvdchart.spec.model import Toleration as Toleration
    from hvdchart.spec.model import Train as Train
    from hvdchart.spec.model import Tuning as Tuning
    from hvdchart.spec.model import Volume as Volume
    from hvdchart.values.check_values import checked_values as checked_values
    from hvdchart.values.render import render_values as render_values

# The distribution's version, too: pyproject.toml reads it here.
__version__ = "0.2.0"
# The names of the library, by module. A module is imported when one of its names is first used: a
# command such as `status` needs none of them, and they take 0.2 s.
_PUBLIC_NAMES = {
    "hvdchart.calls.caller": ("Caller",),
    "hvdchart.calls.launch": ("close", "launch"),
    "hvdchart.errors": (
        "CallError",
        "ClusterError",
        "FileError",
        "HelmError",
        "HvdchartError",
        "RunFailedError",
        "SpecError",
        "TimeLimitError",
        "ValuesError",
    ),
    "hvdchart.plan.model": ("GroupPlan", "Plan"),
    "hvdchart.plan.planner": ("make_plan",),
    "hvdchart.plan.rules": ("Reason",),
    "hvdchart.spec.load": ("checked_spec", "load_spec", "parse_spec"),
    "hvdchart.spec.model": (
        "HorovodSettings",
        "Image",
        "Launch",
        "Nfs",
        "NodeGroup",
        "Rdma",
        "Reserved",
        "Spec",
        "Toleration",
        "Train",
        "Tuning",
        "Volume",
    ),
    "hvdchart.values.check_values": ("checked_values",),
    "hvdchart.values.render": ("render_values",),
}
_MODULES = {name: module for module, names in _PUBLIC_NAMES.items() for name in names}
__all__ = sorted([*_MODULES, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a name of the library when it is first used. Raises AttributeError for another one."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = getattr(module, name)
    # Python does not call this function again for a name that the module has.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of the library, also those that are not imported yet."""
    return __all__
