"""Plan a script that has no spec, and remark on what its run lacks."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hvd_pods.shared.contract import COMMAND
from hvd_pods.shared.pip_output import REQUIREMENTS
from hvdchart.errors import FileError, SpecError
from hvdchart.files import write_atomically
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import plan_tree
from hvdchart.plan.user_code import needed_modules, used_modules
from hvdchart.quantity import pluralize
from hvdchart.script.beside_script import drop_own_modules, read_text, warn_of_files_left
from hvdchart.script.default_images import DefaultImage, choose_default_image, warn_of_misspelt
from hvdchart.script.named_image import warn_of_lacked_frameworks
from hvdchart.script.options import RUN_COMMAND, ScriptRun
from hvdchart.script.spec_tree import SCRIPT_CPU, make_script_tree
from hvdchart.script.wording import marked_words, name_options, rephrase_for_run
from hvdchart.spec.overlays import merge_specs
from hvdchart.spec.paths import value_at
from hvdchart.spec.yaml_tree import Node, Plain, SourcePlace, from_plain
from hvdchart.values.check_values import checked_values
from hvdchart.values.render import dump

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
        yield from warn_of_small_worker(self.plan, "--cpu")

    def warn_of_files(self, script: Path, code: Path | None) -> ScriptPlan:
        """Return this plan with warnings about files beside the script, and about missing modules.

        `code` is the path in --code. Raises FileError for a script that imports a module beside it
        which is neither sent along nor can be in the image.
        """
        folder = code if code and code.is_dir() else None
        warnings: list[str] = []
        if folder is None:
            image = self.image if code is None else None
            warnings += warn_of_files_left(script, self.modules, image, self.needed)
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
            warnings += warn_of_misspelt(drop_own_modules(used, [script.parent]))
        plan = dataclasses.replace(self.plan, warnings=(*warnings, *self.plan.warnings))
        return dataclasses.replace(self, plan=plan)

    def _lacked_frameworks(self, folder: Path, requirements: str) -> Iterator[str]:
        """Warn about the image that the user named; `folder` has modules of the code."""
        named = self.plan.spec.image
        if named:
            used = drop_own_modules(self.needed, [folder])
            has_gpus = any(group.group.gpus for group in self.plan.groups)
            yield from warn_of_lacked_frameworks(
                named.repository, used, requirements, has_gpus=has_gpus
            )

    def save(self, file: Path, code: Path) -> None:
        """Write the spec. Raises FileError for a file that exists or cannot be written."""
        if file.exists():
            raise FileError(
                f"--save-spec {file}: exists already; choose another name, or remove it"
            )
        text = _SAVED.format(file=file, code=code)
        write_atomically(file, text + dump(self.spec.plain, {}))


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
            default = choose_default_image(uses, has_gpus=_has_gpus(chosen))
        spec = make_script_tree(run, default, is_tagged=True)
        marks = {"master": {"podAnnotations": {COMMAND: RUN_COMMAND}}} if is_marked else {}
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


def warn_of_small_worker(plan: Plan, option: str) -> Iterator[str]:
    """Yield a remark about a worker without requested CPUs; `option` requests more."""
    group = plan.groups[0]
    if group.requests.get("cpu") == SCRIPT_CPU and "OMP_NUM_THREADS" in group.env:
        threads = pluralize(int(group.env["OMP_NUM_THREADS"]), "thread")
        yield f"a worker requests {SCRIPT_CPU} CPU, and a rank has {threads}: {option} gives more"


def _has_gpus(spec: Plain) -> bool:
    """Return whether the nodes of a spec, which need not be valid, have GPUs."""
    nodes = value_at(spec, ("nodes",))
    return isinstance(nodes, list) and any(value_at(node, ("gpus",)) for node in nodes)
