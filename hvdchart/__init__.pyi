# The names of the library. Type checkers read this list, and __init__.py imports by it.
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

__version__: str
