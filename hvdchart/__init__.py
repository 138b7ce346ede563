"""Plans distributed Horovod training on Kubernetes: from a spec to values of the chart.

    from hvdchart import load_spec, make_plan, render_values

    plan = make_plan(load_spec("values/xeon-4.spec.yaml", settings=["nodes.0.count=8"]))
    print(plan.ranks, plan.warnings)
    print(render_values(plan))

These functions use no network, no cluster and no other process. See docs/library.md.
"""

from hvdchart.errors import FileError, HvdchartError, SpecError, ValuesError
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.plan.planner import make_plan
from hvdchart.plan.rules import Reason
from hvdchart.spec.load import checked_spec, load_spec, parse_spec
from hvdchart.spec.model import (
    Elastic,
    Image,
    Launch,
    NodeGroup,
    Rdma,
    Reserved,
    Spec,
    Switches,
    Toleration,
    Train,
    Tuning,
)
from hvdchart.spec.volumes import Nfs, Volume
from hvdchart.values.check import checked_values
from hvdchart.values.render import render_values

# The distribution's version, too: pyproject.toml reads it here.
__version__ = "0.2.0"

__all__ = [
    "Elastic",
    "FileError",
    "GroupPlan",
    "HvdchartError",
    "Image",
    "Launch",
    "Nfs",
    "NodeGroup",
    "Plan",
    "Rdma",
    "Reason",
    "Reserved",
    "Spec",
    "SpecError",
    "Switches",
    "Toleration",
    "Train",
    "Tuning",
    "ValuesError",
    "Volume",
    "__version__",
    "checked_spec",
    "checked_values",
    "load_spec",
    "make_plan",
    "parse_spec",
    "render_values",
]
