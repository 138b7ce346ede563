"""Make a plan from the files that a command names, and report remarks about it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hvdchart.cli.terminal import print_notes, print_remark
from hvdchart.errors import FileError
from hvdchart.script.options import SCRIPT_OPTIONS, ScriptRun
from hvdchart.spec import SPEC_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hvdchart.plan.model import Plan
    from hvdchart.script.script_plan import ScriptPlan
    from hvdchart.spec.yaml_tree import Plain


@dataclass(frozen=True)
class Script:
    """A script that a command names, its arguments, and the options that were given for it.

    `code` is what --code names.
    """

    path: Path
    arguments: Sequence[str | Path]
    script_run: ScriptRun
    code: Path | None

    @classmethod
    def of_words(
        cls, words: Sequence[str], script_run: ScriptRun, code: Path | None
    ) -> Script | None:
        """Return the script that a command names instead of a spec; None if it names none.

        Raises typer.BadParameter for options of a script without one.
        """
        if is_script([Path(word) for word in words[:1]]):
            return cls(Path(words[0]), words[1:], script_run, code)
        _refuse_script_options(script_run)
        return None

    def command(self) -> list[str]:
        """Return the ranks' command. Raises FileError for a script that cannot be run."""
        from hvdchart.script.script_file import script_command

        return script_command(self.path, self.code, list(map(str, self.arguments)))

    def plan(
        self,
        settings: Sequence[str] | None,
        values: Mapping[str, Plain],
        report: Callable[[str], object] = print_notes,
        *,
        is_marked: bool = False,
    ) -> ScriptPlan:
        """Return the plan of the script, with warnings about its files; `report` gets the remarks.

        The code is in `values`, or is read from files. With `is_marked`, messages about the run
        name options of `hvdchart run`. Raises FileError, SpecError and typer.BadParameter.
        """
        from hvdchart.code.archive import pack_code
        from hvdchart.script.script_file import script_name
        from hvdchart.script.script_plan import plan_script

        command = self.command()
        if "code" not in values:
            values = {**values, "code": pack_code(self.code or self.path, print_remark)}
        name = self.script_run.name or script_name(self.path)
        run = replace(self.script_run, command=command, name=name, settings=settings or ())
        script_plan = plan_script(run, values, is_marked=is_marked).warn_of_files(
            self.path, self.code
        )
        for remark in script_plan.remarks():
            report(remark)
        return script_plan


def _refuse_script_options(script_run: ScriptRun) -> None:
    """Raise typer.BadParameter for an option of a script if there is no script."""
    for name, option in SCRIPT_OPTIONS.items():
        value = getattr(script_run, name)
        is_set = "envvar" in option.shown and value == os.environ.get(option.shown["envvar"])
        if value not in (None, "", []) and not is_set:
            keys = " and ".join(option.keys)
            raise typer.BadParameter(
                f"{option.option} is an option of scripts: in a spec, --set sets {keys}"
            )


def warn_of_left_behind(
    code: Path, packed: Mapping[str, Plain], report: Callable[[str], object] = print_notes
) -> None:
    """Warn of files beside a script of --code that it uses; `packed` is the chart's value."""
    from hvdchart.plan.user_code import used_modules
    from hvdchart.script.beside_script import warn_of_files_left

    if code.is_file():
        modules = [module for _, module in used_modules(packed, [code.name])]
        for warning in warn_of_files_left(code, modules):
            report(f"warning: {warning}")


def spec_files(specs: list[Path] | None, code: Path | None = None) -> list[Path]:
    """Return the spec files in order.

    A folder stands for the spec in it. Without any spec, return the spec of the folder that --code
    names, or of the folder with the file that --code names; without --code, return none.
    """
    paths = specs or []
    if not paths and code is not None:
        paths = [code if code.is_dir() else code.parent]
    return [path / SPEC_NAME if path.is_dir() else path for path in paths]


def plan_specs(
    specs: list[Path] | None,
    settings: list[str] | None,
    values: Mapping[str, Plain] | None = None,
    code: Path | None = None,
) -> tuple[list[Path], Plan]:
    """Return the spec files in order, and the plan of the merged specs, settings and `values`.

    Raises FileError and SpecError. Raises typer.BadParameter when no spec is named, and for the
    words of a command among the specs.
    """
    from hvdchart.plan.planner import plan_tree
    from hvdchart.spec.load import load_specs

    paths = spec_files(specs, code)
    for path in paths:
        if len(path.name) > 1 and path.name.startswith("-"):
            raise typer.BadParameter(
                f"{path} is no spec: arguments of the ranks' command belong to its `train.command`"
            )
        check_has_spec(path)
    if not paths:
        raise typer.BadParameter("no spec: name a file, or a folder with one")
    plan = plan_tree(load_specs(paths, settings or (), values))
    _warn_of_missing_code(paths[0], plan)
    return paths, plan


def _warn_of_missing_code(path: Path, plan: Plan) -> None:
    """Warn of the command's script beside the spec if no code is distributed."""
    if plan.spec.values.get("code"):
        return
    folder = path.parent
    for word in plan.spec.train.command:
        if word.endswith(".py") and not Path(word).is_absolute() and (folder / word).is_file():
            print_notes(
                f"warning: {folder / word} stays on this machine, and the image must have {word}; "
                f"--code {folder} hands it out, and so does the folder in the place of {path.name}"
            )


def check_has_spec(path: Path, command: str = "run") -> None:
    """Raise FileError if the folder lacks the spec `path`; suggest `command` if it has a script."""
    scripts = {file.name for file in path.parent.glob("*.py")}
    if path.name == SPEC_NAME and scripts and not path.exists():
        usual = [name for name in ("train.py", "main.py") if name in scripts]
        name = scripts.pop() if len(scripts) == 1 else next(iter(usual), "SCRIPT")
        raise FileError(
            f"{path}: no such file; without a spec: hvdchart {command} {path.parent / name}"
        )


def is_script(named: Sequence[Path]) -> bool:
    """Return whether a command names a script instead of a spec, even one that `run` refuses."""
    return bool(named) and named[0].suffix in (".py", ".ipynb", ".sh")


def refuse_script(specs: list[Path] | None) -> None:
    """Raise typer.BadParameter for a script if the command accepts a spec only.

    Raises FileError for a script that `hvdchart run` refuses, too.
    """
    if specs and is_script(specs):
        from hvdchart.script.script_file import script_command

        script_command(specs[0], None)
        raise typer.BadParameter(
            f"{specs[0]} is a script: hvdchart run {specs[0]}, whose --save-spec writes a spec"
        )


def plan_project(
    specs: list[Path] | None,
    settings: list[str] | None,
    code: Path | None,
) -> tuple[list[Path], Plan]:
    """Make a plan as `plan_specs` does, with the code.

    The code is that of --code, or that of the first folder among the specs. Without either, there
    is no code.
    """
    if code is None:
        code = next((path for path in specs or () if path.is_dir()), None)
    values: Mapping[str, Plain] | None = None
    if code is not None:
        from hvdchart.code.archive import pack_code

        packed = pack_code(code, print_remark)
        warn_of_left_behind(code, packed)
        values = {"code": packed}
    return plan_specs(specs, settings, values, code)


def print_warnings(plan: Plan, report: Callable[[str], object] = print_notes) -> None:
    """Write the plan's warnings to standard error, or with `report`."""
    for warning in plan.warnings:
        report(f"warning: {warning}")
