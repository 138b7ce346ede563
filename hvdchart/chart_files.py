"""The location of the chart, and its data that the planner, templates and pods share."""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hvdchart.errors import FileError

# The maximum number of bytes of all code files, unpacked: the chart takes about a megabyte of them,
# compressed.
MAX_CODE_BYTES = 256 << 20


def chart_dir() -> Path:
    """Return the chart's directory: in an installed wheel, or beside this package in a checkout.

    Raises FileError when it is in neither place.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "chart", package.parent / "charts" / "horovod"):
        if (candidate / "Chart.yaml").is_file():
            return candidate
    problem = "the chart is neither in the package nor in charts/horovod beside it"
    raise FileError(f"{package}: {problem}; install the package again")


def app_version() -> str:
    """Return the version of the chart's images, which is the tag of images without one.

    Raises FileError for a Chart.yaml without it.
    """
    for line in (chart_dir() / "Chart.yaml").read_text("utf-8").splitlines():
        if line.startswith("appVersion:"):
            return line.partition(":")[2].strip().strip("\"'")
    raise FileError(f"{chart_dir()}: Chart.yaml has no appVersion")


@functools.cache
def read_data(name: str) -> dict[str, Any]:
    """Return the content of a JSON file that the pods' programs also read.

    All callers share the object, so do not change it.
    """
    folder = chart_dir() / "files" / "hvd_pods" / "shared"
    data: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    return data


def is_gpu(resource: str) -> bool:
    """Return whether an extended resource is a GPU, or a part or share of one.

    Such a resource gets one rank.
    """
    return re.fullmatch(read_data("resources.json")["gpus"], resource) is not None


class DevicePlugin(NamedTuple):
    """How a device plugin gives GPUs to a container: the variable that it sets, and the values with
    which the container may set the variable itself.
    """

    variable: str
    values: tuple[str, ...]


def device_plugin(resources: Iterable[str]) -> DevicePlugin | None:
    """Return the device plugin that passes these resources in a variable; None without one."""
    plugin = read_data("resources.json")["devicePlugin"]
    if not any(is_gpu(name) and re.fullmatch(plugin["resources"], name) for name in resources):
        return None
    return DevicePlugin(plugin["variable"], tuple(plugin["values"]))


def max_workers() -> int:
    """Return the maximum number of workers of a run, with spares."""
    return int(read_data("resources.json")["workers"])


def is_charts_volume(name: str) -> bool:
    """Return whether the chart's pods have a volume of this name, so that values must not."""
    return name in read_data("resources.json")["reserved"]["volumes"]


def is_reserved_path(path: str) -> bool:
    """Return whether files of the chart or of the system are at a path, so that values must not
    mount a volume there.

    The templates' rule is horovod.checkReservedPaths in
    charts/horovod/templates/checks/_reserved.tpl.
    """
    reserved = read_data("resources.json")["reserved"]
    # normpath keeps two slashes at the beginning.
    clean = posixpath.normpath("/" + path.lstrip("/"))
    patterns = (reserved["mountPaths"], reserved["systemPaths"])
    return any(re.fullmatch(pattern, clean) for pattern in patterns)


def is_charts_variable(name: str) -> bool:
    """Return whether the chart sets this environment variable, so that values must not."""
    reserved = read_data("resources.json")["reserved"]
    is_reserved = re.fullmatch(reserved["variables"], name) is not None
    return is_reserved and name not in reserved["userVariables"]


def is_ranks_variable(name: str) -> bool:
    """Return whether this variable has a rank's position; the chart always overrides it."""
    options = read_data("launcher_options.json")
    groups = (*options["rankVariables"].values(), *options["placeVariables"].values())
    return any(name in names for names in groups)


def launch_modes() -> tuple[str, ...]:
    """Return the chart's launch modes, the default one first."""
    return tuple(read_data("launcher_options.json")["modes"])


def read_example(name: str) -> str:
    """Return the text of one of the examples. Raises FileError if it is not installed."""
    package = Path(__file__).resolve().parent
    # In an installed wheel, or in a checkout.
    for folder in (package / "examples", package.parent / "examples"):
        if (folder / name).is_file():
            return (folder / name).read_text("utf-8")
    raise FileError(f"{package}: the examples are missing; install the package again")
