"""Plan a script that has no spec, and remark on what its run lacks."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hvd_pods.shared.contract import COMMAND
from hvd_pods.shared.pip_output import REQUIREMENTS
from hvdchart.errors import FileError, SpecError
from hvdchart.files import write_atomically
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import plan_tree
from hvdchart.plan.user_code import needed_modules, used_modules
from hvdchart.project import SPEC_NAME
from hvdchart.project.beside_script import drop_own_modules, left_behind, read_text
from hvdchart.project.default_images import DefaultImage, default_image, misspelt
from hvdchart.project.named_image import lacked_frameworks
from hvdchart.project.script_tree import SCRIPT_CPU, make_script_tree
from hvdchart.quantity import pluralize
from hvdchart.spec.fields import RELEASE_NAME, nearest
from hvdchart.spec.launchers import skip_env
from hvdchart.spec.overlays import merge_specs
from hvdchart.spec.paths import value_at
from hvdchart.spec.run_options import (
    RUN,
    ScriptRun,
    marked_words,
    name_options,
    rephrase_for_run,
)
from hvdchart.spec.values_schema import schema_at, values_schema
from hvdchart.spec.yaml_tree import Node, Plain, SourcePlace, from_plain
from hvdchart.text import join_names
from hvdchart.values.check_values import checked_values
from hvdchart.values.render import dump

# The name of a shell, such as bash or zsh-5.8.
_SHELL_NAME = re.compile(r"\w*sh[-.0-9]*")
# The maximum number of a folder's scripts in a message.
_MAX_NAMED_SCRIPTS = 3
_SAVED = """\
# Written by `hvdchart run --save-spec`. To run it again:
#   hvdchart deploy {file} --code {code}
"""


@dataclass(frozen=True)
class ScriptPlan:
    """The plan of a script, the spec that it was made of, and the image that was chosen for it.

    The warnings of the plan name options. `image` is None if the user named one. `modules` are the
    imports of the script. Without those in `needed`, the script fails at once.
    """

    plan: Plan
    spec: Node
    image: DefaultImage | None
    modules: frozenset[str]
    needed: frozenset[str]

    def remarks(self) -> Iterator[str]:
        """Yield remarks for the user of a script: the image that was chosen, and the CPUs."""
        if self.image:
            also = f"; {self.image.remark}" if self.image.remark else ""
            other = "another one: `run --image`, or HVDCHART_IMAGE"
            yield f"image {self.image.reference}, because {self.image.reason} ({other}){also}"
        yield from small_worker(self.plan, "--cpu")

    def warn_of_files(self, script: Path, code: Path | None) -> ScriptPlan:
        """Return this plan with warnings about files beside the script, and about missing modules.

        `code` is the path in --code. Raises FileError for a script that imports a module beside it
        which is neither sent along nor can be in the image.
        """
        folder = code if code and code.is_dir() else None
        warnings: list[str] = []
        if folder is None:
            image = self.image if code is None else None
            warnings += left_behind(script, self.modules, image, self.needed)
        beside = folder or script.parent
        requirements = read_text(beside / REQUIREMENTS)
        if not self.image:
            warnings += self._lacked_frameworks(beside, requirements)
        else:
            used = drop_own_modules(self.modules, [folder, script.parent] if folder else [])
            lacks = self.image.lacking(used, requirements)
            if lacks:
                place = f"in {folder}" if folder else f"beside the script, and --code {beside}"
                add = f"add {' and '.join(lacks)} to {REQUIREMENTS} {place}"
                warnings.append(f"the image lacks what the script imports: {add}")
            warnings += misspelt(drop_own_modules(used, [script.parent]))
        plan = dataclasses.replace(self.plan, warnings=(*warnings, *self.plan.warnings))
        return dataclasses.replace(self, plan=plan)

    def _lacked_frameworks(self, folder: Path, requirements: str) -> Iterator[str]:
        """Warn about the image that the user named; `folder` has modules of the code."""
        named = self.plan.spec.image
        if named:
            used = drop_own_modules(self.needed, [folder])
            has_gpus = any(group.group.gpus for group in self.plan.groups)
            yield from lacked_frameworks(named.repository, used, requirements, has_gpus=has_gpus)

    def save(self, file: Path, code: Path) -> None:
        """Write the spec. Raises FileError for a file that exists or cannot be written."""
        if file.exists():
            raise FileError(
                f"--save-spec {file}: exists already; choose another name, or remove it"
            )
        text = _SAVED.format(file=file, code=code)
        write_atomically(file, text + dump(self.spec.plain, {}))


def script_command(script: Path, code: Path | None, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a script in the pods: the script alone, or in folder `code`.

    Raises FileError for a script that is no file or none of Python, whose name the chart does not
    take, or that is not in the folder.
    """
    if script.is_dir():
        raise FileError(f"{script} is a folder: {_instead_of_folder(script)}")
    if not script.is_file():
        near = ""
        if script.parent.is_dir():
            # Leave out the common suffix: it would make short names similar.
            others = sorted(path.stem for path in script.parent.glob("*.py") if path != script)
            near = nearest(script.stem, others, ".py")
        raise FileError(f"{script}: no such file{near}")
    if script.suffix == ".ipynb":
        raise FileError(
            f"{script} is a notebook, not a script: `jupyter nbconvert --to script {script}` makes "
            "one of it; in a cell, `hvdchart.launch(function, workers=2)` runs a function on ranks"
        )
    if script.suffix in (".sh", ".bash") or _is_of_shell(read_text(script)):
        raise FileError(
            f"{script} is a script of a shell, not of Python: `hvdchart migrate {script}` reads "
            "its launcher's line"
        )
    if script.suffix in (".yaml", ".yml"):
        raise FileError(f"{script} is no script; to run a spec: hvdchart deploy {script}")
    is_alone = code is None or not code.is_dir()
    if is_alone and not re.fullmatch(_names_of_files(), script.name):
        raise FileError(
            f"{script}: the name {script.name!r} has other characters than A-Z a-z 0-9 . _ -: "
            "rename the script"
        )
    shown = script.name
    if code is not None and not code.exists():
        raise FileError(f"--code {code}: no such file or folder")
    if code is not None and code.resolve() != script.resolve():
        if not script.resolve().is_relative_to(code.resolve()):
            raise FileError(f"--code {code}: does not contain {script}")
        shown = script.resolve().relative_to(code.resolve()).as_posix()
    return ["python3", shown, *arguments]


def _is_of_shell(text: str) -> bool:
    """Return whether the first line of a script names a shell, alone or after `env`."""
    line = text.partition("\n")[0]
    words = skip_env(line[2:].split()) if line.startswith("#!") else []
    return bool(words and _SHELL_NAME.fullmatch(PurePosixPath(words[0]).name))


def _names_of_files() -> str:
    """Return the pattern of the names that the chart accepts for single files of code."""
    files = schema_at(values_schema(), ("code", "files")) or {}
    (pattern,) = files["patternProperties"]
    return str(pattern)


def script_name(script: Path) -> str:
    """Return the name of a script's run without a given name: `train` for 01_train.py.

    Raises FileError for a script whose file name has no letter of a name.
    """
    words = re.sub("[^a-z0-9]+", "-", script.stem.lower())
    # A name starts with a letter.
    name = words.lstrip("-0123456789")[: RELEASE_NAME.longest].rstrip("-")
    if not name:
        raise FileError(f"{script}: its file name gives the run no name: add --name NAME")
    return name


def plan_script(
    run: ScriptRun, values: Mapping[str, Plain], *, is_marked: bool = False
) -> ScriptPlan:
    """Return the plan of a script; `values` are the chart's values of the command, with the code.

    With `is_marked`, messages about the run name options of `hvdchart run`. Raises SpecError, which
    names the options that were typed, and FileError for a script that is no Python.
    """
    uses = list(used_modules(values.get("code"), run.command))
    try:
        # The image and GPUs of --set also count.
        chosen = make_script_tree(run, None).plain
        default = None
        if not value_at(chosen, ("image", "repository")):
            default = default_image(uses, has_gpus=_has_gpus(chosen))
        spec = make_script_tree(run, default, is_tagged=True)
        marks = {"master": {"podAnnotations": {COMMAND: RUN}}} if is_marked else {}
        place = SourcePlace("the given values")
        tree = merge_specs(
            [spec, *(from_plain({"values": part}, place) for part in (marks, values))]
        )
        plan = plan_tree(tree)
        broken = plan.framework.broken.get(run.command[1])
        # An image of unknown version may have a newer Python than this one.
        if broken and default and default.python and default.python <= sys.version_info[:2]:
            raise FileError(broken)
        checked_values(plan)
    except SpecError as error:
        raise rephrase_for_run(error, run) from error
    marked = marked_words(run)
    warnings = [
        name_options(warning.removeprefix("group worker: "), marked) for warning in plan.warnings
    ]
    plan = dataclasses.replace(plan, warnings=tuple(warnings))
    modules = frozenset(module for _, module in uses)
    needed = needed_modules(values.get("code"), run.command)
    return ScriptPlan(plan, spec, default, modules, needed)


def small_worker(plan: Plan, option: str) -> Iterator[str]:
    """Yield a remark about a worker without requested CPUs; `option` requests more."""
    group = plan.groups[0]
    if group.requests.get("cpu") == SCRIPT_CPU and "OMP_NUM_THREADS" in group.env:
        threads = pluralize(int(group.env["OMP_NUM_THREADS"]), "thread")
        yield f"a worker requests {SCRIPT_CPU} CPU, and a rank has {threads}: {option} gives more"


def _instead_of_folder(folder: Path) -> str:
    """Return what to name in the place of a folder: the project in it, or one of its scripts."""
    if (folder / SPEC_NAME).is_file():
        return f"name the script in it, or to run the project: hvdchart deploy {folder}"
    scripts = sorted(str(path) for path in folder.glob("*.py"))
    if not scripts:
        return "it has no script; name one"
    if len(scripts) <= _MAX_NAMED_SCRIPTS:
        return f"name a script in it, such as {join_names(scripts)}"
    return (
        f"name one of its {len(scripts)} scripts, such as {', '.join(scripts[:_MAX_NAMED_SCRIPTS])}"
    )


def _has_gpus(spec: Plain) -> bool:
    """Return whether the nodes of a spec, which need not be valid, have GPUs."""
    nodes = value_at(spec, ("nodes",))
    return isinstance(nodes, list) and any(value_at(node, ("gpus",)) for node in nodes)
