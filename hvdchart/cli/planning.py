"""From the files that a command names to a plan, and what is said about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hvdchart.cli.terminal import note, say
from hvdchart.project import SPEC_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hvdchart.plan.model import Plan
    from hvdchart.project.default_images import DefaultImage
    from hvdchart.run.cluster import Cluster
    from hvdchart.spec.yaml_tree import Plain


def read_values(files: list[Path] | None, code: Path | None) -> Mapping[str, Plain] | None:
    """The chart's values in the files of --values, and those of --code, merged in order.

    None if there are none. Raises FileError for what cannot be read, SpecError for what is not
    YAML, and typer.BadParameter for a file that is not a map.
    """
    from hvdchart.spec.load import load_tree
    from hvdchart.values.merge import merge_values

    merged: dict[str, Plain] = {}
    for file in files or ():
        values = load_tree(file).plain
        if not isinstance(values, dict):
            raise typer.BadParameter(f"--values {file}: must be a map of the chart's values")
        merged = merge_values(merged, values)
    if code is not None:
        from hvdchart.code.archive import pack_code

        merged = merge_values(merged, {"code": pack_code(code, say)})
    return merged or None


def spec_files(
    specs: list[Path] | None, files: list[Path] | None, code: Path | None = None
) -> list[Path]:
    """The spec files in order: SPEC first, then those of --file.

    A folder stands for the spec in it. Without any of them, the spec is that of the folder that
    --code names or is in; empty without --code, too.
    """
    named = [*(specs or ()), *(files or ())]
    if not named and code is not None:
        named = [code if code.is_dir() else code.parent]
    return [path / SPEC_NAME if path.is_dir() else path for path in named]


def plan_specs(
    specs: list[Path] | None,
    files: list[Path] | None,
    settings: list[str] | None,
    values: Mapping[str, Plain] | None = None,
    code: Path | None = None,
    report: Callable[[str], object] = note,
) -> tuple[list[Path], Plan]:
    """The spec files in order, and the plan of what they, the settings and `values` merge to.

    A script in the place of a spec gets the spec that `hvdchart run` makes for it. Its code is in
    `values`, or else read, and `report` gets its image. Raises FileError and SpecError, and
    typer.BadParameter when no spec is named.
    """
    from hvdchart.plan.planner import plan_tree
    from hvdchart.spec.load import load_specs

    paths = spec_files(specs, files, code)
    if not paths:
        raise typer.BadParameter("no spec: name a file, or a folder with one")
    if is_script(paths):
        return paths, _plan_script(paths[0], settings, values or {}, code, report)
    return paths, plan_tree(load_specs(paths, settings or (), values))


def is_script(paths: Sequence[Path]) -> bool:
    """Whether a script was named in the place of a spec."""
    return [path.suffix for path in paths] == [".py"]


def _plan_script(
    script: Path,
    settings: list[str] | None,
    values: Mapping[str, Plain],
    code: Path | None,
    report: Callable[[str], object],
) -> Plan:
    """The plan of a script, with the image of HVDCHART_IMAGE or a public one."""
    from hvdchart.code.archive import pack_code
    from hvdchart.project.script import ScriptRun, plan_script, script_command, script_name

    command = script_command(script, code)
    if "code" not in values:
        values = {**values, "code": pack_code(code or script, say)}
    image = os.environ.get("HVDCHART_IMAGE", "")
    run = ScriptRun(command, script_name(script), image=image, settings=settings or ())
    made = plan_script(run, values)
    print_default_image(made.image, report)
    return made.plan


def print_default_image(image: DefaultImage | None, report: Callable[[str], object] = note) -> None:
    """Say which public image a script gets, and why; nothing where the user has named one."""
    if image:
        remark = f"; {image.remark}" if image.remark else ""
        other = "another one: `run --image`, or HVDCHART_IMAGE"
        report(f"image {image.reference}, because {image.why} ({other}){remark}")


def plan_project(
    specs: list[Path] | None,
    files: list[Path] | None,
    settings: list[str] | None,
    code: Path | None,
    values: list[Path] | None = None,
) -> tuple[list[Path], Plan]:
    """As `plan_specs`, with the files of --values and the code.

    The code is that of --code, or of the first folder among the specs; without either, there is
    none.
    """
    if code is None:
        named = [*(specs or ()), *(files or ())]
        code = next((path for path in named if path.is_dir()), None)
    return plan_specs(specs, files, settings, read_values(values, code), code)


def check_room(plan: Plan, cluster: Cluster) -> None:
    """Raise ClusterError for a run that the cluster's nodes could never run, however long it waits.

    Raises SpecError and ValuesError for values that the chart refuses.
    """
    from hvdchart.doctor.examine import check_room as check
    from hvdchart.values.check import checked_values
    from hvdchart.values.merge import merge_values
    from hvdchart.values.schema import default_values

    check(cluster, merge_values(default_values(), checked_values(plan)))


def print_warnings(plan: Plan) -> None:
    """Write the plan's warnings to standard error."""
    for warning in plan.warnings:
        note(f"warning: {warning}")
