"""The spec of a run that takes calls, with the programs that it needs in the pods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from hvd_pods.shared.launcher_options import LAUNCH
from hvdchart.calls.call_image import OwnRun
from hvdchart.code.archive import list_files, pack_files
from hvdchart.errors import SpecError
from hvdchart.plan.measuring import command_plan
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import load_spec
from hvdchart.spec.model import Spec

# The folder of the programs in the code of the pods, and the package that contains them.
_HVDCHART_FOLDER = ".hvdchart"
_IN_POD = Path(__file__).parent / "in_pod"
CALL_PROGRAMS = f"{_HVDCHART_FOLDER}/hvdchart/calls/in_pod"
# How often workers may be lost.
_MAX_WORKER_LOSSES = 1000


def read_with_programs(
    source: str | Path | Spec | OwnRun,
    name: str,
    code: Path | None,
    report: Callable[[str], object],
) -> Spec:
    """Return the spec with the current code and programs. Raises SpecError and FileError.

    `report` gets a line about secrets that are left out.
    """
    if isinstance(source, OwnRun):
        spec = source.spec()
    else:
        spec = source if isinstance(source, Spec) else load_spec(source)
    if spec.launch.mode not in (None, "mpirun"):
        raise SpecError("the spec", "launch.mode", f"{spec.launch.mode!r} takes no calls", "mpirun")
    # The option `--code` of the command line is `code` here.
    files = list_files(code, report) if code else {}
    # The package of the programs, and cloudpickle.
    packages = ("hvdchart/__init__.py", "hvdchart/calls/__init__.py")
    ours = {f"{_HVDCHART_FOLDER}/{file}": _IN_POD / "__init__.py" for file in packages}
    ours |= {f"{CALL_PROGRAMS}/{file.name}": file for file in sorted(_IN_POD.glob("*.py"))}
    pickle = Path(cloudpickle.__file__).parent
    ours |= {
        f"{_HVDCHART_FOLDER}/site/cloudpickle/{file.name}": file for file in pickle.glob("*.py")
    }
    # Some installers replace a package's files by links.
    files |= {name: file.resolve() for name, file in ours.items()}
    values = {**spec.values, "code": {"archive": pack_files(code or _IN_POD, files)}}
    return dataclasses.replace(spec, name=name or spec.name, values=values)


def plan_calls(spec: Spec, idle: float) -> Plan:
    """Plan the run that takes the calls; it ends after `idle` seconds without a call."""
    server = ("python3", f"{CALL_PROGRAMS}/call_server.py", f"{idle:g}")
    rank = ("python3", f"{CALL_PROGRAMS}/rank.py")
    plan = make_plan(spec)
    return command_plan(plan, plan.spec, (*server, LAUNCH, *rank), _MAX_WORKER_LOSSES)
