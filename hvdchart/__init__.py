"""Plans distributed Horovod training on Kubernetes: from a spec to values of the chart.

    from hvdchart import load_spec, make_plan, render_values

    plan = make_plan(load_spec("values/xeon-4.spec.yaml"))
    print(plan.ranks, plan.warnings)
    print(render_values(plan))

These functions use no network, no cluster and no other process. See docs/library.md.
"""

from hvdchart.errors import FileError, HvdchartError, SpecError, ValuesError
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.plan.planner import make_plan
from hvdchart.plan.rules import Reason
from hvdchart.spec.load import load_spec, parse_spec
from hvdchart.spec.model import NodeGroup, Spec
from hvdchart.values.check import checked_values
from hvdchart.values.render import render_values

__all__ = [
    "FileError",
    "GroupPlan",
    "HvdchartError",
    "NodeGroup",
    "Plan",
    "Reason",
    "Spec",
    "SpecError",
    "ValuesError",
    "checked_values",
    "load_spec",
    "make_plan",
    "parse_spec",
    "render_values",
]
