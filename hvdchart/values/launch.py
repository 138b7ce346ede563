"""Finds what the chart's templates refuse in the launch settings of values. Pure.

The spec's own keys were checked when it was read; its `values` can change the settings afterwards.
The templates are charts/horovod/templates/checks/_launch.tpl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from hvdchart.spec.launchers import LAUNCH, ConflictingSettings, find_option_problems
from hvdchart.spec.paths import KeyPath, value_at
from hvdchart.spec.yaml_tree import Plain
from hvdchart.values.merge import merged_groups

Finding: TypeAlias = tuple[KeyPath, str, str]
"""The path in the values, the problem, what was expected."""
# Which number of launch.binding each binding needs, and which it may have.
_NEEDS = {"core": "coresPerRank", "socket": "ranksPerSocket"}
_TAKES = {"none": (), "core": ("coresPerRank", "ranksPerSocket"), "socket": ("ranksPerSocket",)}


def find_launch_problems(values: Mapping[str, Plain]) -> Iterator[Finding]:
    """Every problem in complete values: the values of a plan merged into the chart's defaults."""
    launch: Mapping[str, Any] = values["launch"]
    yield from _custom(launch, values["master"]["args"])
    to, interface = launch["binding"]["to"], values["network"]["interface"]
    settings = ConflictingSettings(
        "" if to == "none" else f"launch.binding.to is {to}",
        f"network.interface is {interface}" if interface else "",
    )
    mode, options = launch["mode"], launch["options"]
    for index, problem, expected in find_option_problems(mode, options, settings):
        yield ("launch", "options", index), problem, expected
    yield from _binding(launch["binding"])
    yield from _elastic(values)


def _custom(launch: Mapping[str, Any], arguments: list[str]) -> Iterator[Finding]:
    custom, has_launch = launch["mode"] == "custom", LAUNCH in arguments
    if has_launch and not custom:
        problem = f"{LAUNCH}, but launch.mode is {launch['mode']}"
        yield ("master", "args"), problem, "launch.mode custom, or no such argument"
    elif custom and not arguments:
        yield ("master", "args"), "empty, but launch.mode is custom", "the complete command line"
    elif custom and not has_launch and (launch["options"] or launch["binding"]["to"] != "none"):
        problem = (
            f"custom, but no argument of master.args is {LAUNCH}, which options and binding need"
        )
        yield ("launch", "mode"), problem, "neither launch.options nor launch.binding"


def _binding(binding: Mapping[str, Any]) -> Iterator[Finding]:
    to = binding["to"]
    needed = _NEEDS.get(to)
    if needed and not binding.get(needed):
        yield ("launch", "binding", "to"), f"{to} without {needed}", f"launch.binding.{needed}"
    for name in ("coresPerRank", "ranksPerSocket"):
        if binding.get(name) and name not in _TAKES[to]:
            problem = f"{to}, but launch.binding.{name} is {binding[name]}"
            yield ("launch", "binding", "to"), problem, f"launch.binding.{name}: null as well"


def _elastic(values: Mapping[str, Plain]) -> Iterator[Finding]:
    launch = values["launch"]
    if launch["mode"] == "elastic":
        yield from _spares(values)
    low, high = (launch["elastic"].get(name) for name in ("minRanks", "maxRanks"))
    at: KeyPath = ("launch", "elastic")
    if launch["mode"] != "elastic":
        if low or high:
            yield at, f"limits of ranks, but launch.mode is {launch['mode']}", "launch.mode elastic"
        return
    if values["hostNetwork"] and not values["network"]["interface"]:
        problem = "true, but launch.mode is elastic and network.interface is empty"
        yield ("hostNetwork",), problem, "network.interface too: Gloo needs the nodes' interface"
    ranks = sum(
        int(group.get("number") or 1) * int(group.get("slots") or 1)
        for group in merged_groups(values)
    )
    if (low and low > ranks) or (high and high < ranks):
        limits = f"minRanks: {low or 'none'}, maxRanks: {high or 'none'}"
        problem = f"the workers have {ranks} ranks ({limits})"
        yield at, problem, "minRanks <= the ranks of all workers <= maxRanks"


def _spares(values: Mapping[str, Plain]) -> Iterator[Finding]:
    places: list[KeyPath] = [("workerGroups", i) for i in range(len(values["workerGroups"]))]
    for path in [("worker",), *places]:
        spares = value_at(values, (*path, "spares"))
        if spares:
            expected = "no spares: an elastic run continues without lost workers"
            yield (*path, "spares"), f"{spares}, but launch.mode is elastic", expected
