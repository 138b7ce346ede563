"""Make the spec of a script without one from the options of `hvdchart run`."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvd_pods.shared.contract import COMMAND, TAG_OUTPUT
from hvd_pods.shared.pip_output import REQUIREMENTS
from hvdchart.errors import FileError, SpecError
from hvdchart.files import write_atomically
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import plan_tree
from hvdchart.plan.user_code import needed_modules, used_modules
from hvdchart.project import SPEC_NAME
from hvdchart.project.default_images import DefaultImage, default_image, misspelt
from hvdchart.project.named_image import lacked_frameworks
from hvdchart.quantity import cpu_millis, pluralize
from hvdchart.spec.fields import IMAGE, OBJECT_NAME, RELEASE_NAME, nearest
from hvdchart.spec.model import DEFAULT_MOUNTS
from hvdchart.spec.overlays import apply_settings, merge_specs, set_key
from hvdchart.spec.paths import value_at
from hvdchart.spec.run_options import (
    DEFAULT_WORKERS,
    RUN,
    ScriptRun,
    name_options,
    rephrase_for_run,
)
from hvdchart.spec.values_schema import schema_at, values_schema
from hvdchart.spec.yaml_tree import Node, Place, Plain, from_plain
from hvdchart.text import join_names, split_image
from hvdchart.values.check_values import checked_values
from hvdchart.values.render import dump

_VOLUME = (
    "NAME=pvc:CLAIM:/PATH, NAME=hostPath:/FOLDER:/PATH, NAME=nfs:SERVER:/FOLDER:/PATH, "
    "NAME=configMap:MAP:/PATH or NAME=emptyDir:/PATH, with :ro at the end to mount it read-only"
)
_SOURCES = ("pvc", "hostPath", "nfs", "configMap")
# The first line of a shell script.
_OF_SHELL = re.compile(r"#!.*\b\w*sh\b")
# The relative name of a file with a suffix, such as data/train.csv, within the folder.
_FILE_NAME = re.compile(r"(?!.*\.\.)[\w-][\w./-]{0,200}\.\w{1,10}")
# The request of a worker without --cpu: it is scheduled on nodes that other pods use, too.
_CPU = "250m"
# The maximum number of a folder's scripts in a message.
_MOST_SCRIPTS = 3
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
            yield f"image {self.image.reference}, because {self.image.why} ({other}){also}"
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
            used = without_own(self.modules, [folder, script.parent] if folder else [])
            lacks = self.image.lacking(used, requirements)
            if lacks:
                where = f"in {folder}" if folder else f"beside the script, and --code {beside}"
                add = f"add {' and '.join(lacks)} to {REQUIREMENTS} {where}"
                warnings.append(f"the image lacks what the script imports: {add}")
            warnings += misspelt(without_own(used, [script.parent]))
        plan = dataclasses.replace(self.plan, warnings=(*warnings, *self.plan.warnings))
        return dataclasses.replace(self, plan=plan)

    def _lacked_frameworks(self, folder: Path, requirements: str) -> Iterator[str]:
        """Warn about the image that the user named; `folder` has modules of the code."""
        named = self.plan.spec.image
        if named:
            used = without_own(self.needed, [folder])
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
            others = sorted(each.stem for each in script.parent.glob("*.py"))
            near = nearest(script.stem, others, ".py")
        raise FileError(f"{script}: no such file{near}")
    if script.suffix == ".ipynb":
        raise FileError(
            f"{script} is a notebook, not a script: `jupyter nbconvert --to script {script}` makes "
            "one of it; in a cell, `hvdchart.launch(function, workers=2)` runs a function on ranks"
        )
    if script.suffix in (".sh", ".bash") or _OF_SHELL.match(read_text(script)):
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
    if code is not None and code.resolve() != script.resolve():
        if not code.exists():
            raise FileError(f"--code {code}: no such file or folder")
        if not script.resolve().is_relative_to(code.resolve()):
            raise FileError(f"--code {code}: does not contain {script}")
        shown = script.resolve().relative_to(code.resolve()).as_posix()
    return ["python3", shown, *arguments]


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
        chosen = script_tree(run, None).plain
        default = None
        if not value_at(chosen, ("image", "repository")):
            default = default_image(uses, has_gpus=_has_gpus(chosen))
        spec = script_tree(run, default, is_tagged=True)
        marks = {"master": {"podAnnotations": {COMMAND: RUN}}} if is_marked else {}
        place = Place("the given values")
        tree = merge_specs(
            [spec, *(from_plain({"values": each}, place) for each in (marks, values))]
        )
        plan = plan_tree(tree)
        broken = plan.framework.broken.get(run.command[1])
        # An image of unknown version may have a newer Python than this one.
        if broken and default and default.python and default.python <= sys.version_info[:2]:
            raise FileError(broken)
        checked_values(plan)
    except SpecError as error:
        raise rephrase_for_run(error) from error
    warnings = [name_options(each.removeprefix("group worker: ")) for each in plan.warnings]
    plan = dataclasses.replace(plan, warnings=tuple(warnings))
    modules = frozenset(module for _, module in uses)
    needed = needed_modules(values.get("code"), run.command)
    return ScriptPlan(plan, spec, default, modules, needed)


def left_behind(
    script: Path,
    modules: Iterable[str],
    image: DefaultImage | None = None,
    needed: Collection[str] = (),
) -> Iterator[str]:
    """Warn of files in the folder that a script sent alone, which imports `modules`, uses.

    Raises FileError if the script would fail at once: `image` is a public image without any of the
    `needed` modules.
    """
    folder = script.parent
    names = sorted({module.partition(".")[0] for module in modules} - {script.stem})
    own = {name: file for name in names if (file := module_file(folder, name))}
    if image:
        found = image.has | sys.stdlib_module_names
        # A package in the image takes precedence over a folder without __init__.py.
        sure = [name for name in own if name in needed and is_regular(folder, name)]
        missing = [own[name] for name in sure if name not in found]
        if missing:
            raise FileError(
                f"{script} imports {' and '.join(missing)} beside it, and would go to the workers "
                f"alone: --code {folder} sends the folder, --code {script} the script alone"
            )
    left = [REQUIREMENTS] if (folder / REQUIREMENTS).is_file() else []
    left += own.values()
    left += [file for file in named_files(script) if file not in (*left, script.name)]
    if left:
        without = " and ".join(left)
        yield f"only {script} goes to the workers, without {without} beside it: --code {folder}"


def named_files(script: Path) -> list[str]:
    """Return the files below a script's folder that a text in the script names, sorted."""
    try:
        tree = ast.parse(read_text(script))
    except (SyntaxError, ValueError, RecursionError):
        return []
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = {text for text in texts if isinstance(text, str) and _FILE_NAME.fullmatch(text)}
    return sorted(name for name in names if (script.parent / name).is_file())


def module_file(folder: Path, name: str) -> str:
    """Return a folder's file or Python folder of a module; empty if it has none.

    `name` is the top-level name of the module.
    """
    if not name:
        return ""
    if (folder / f"{name}.py").is_file():
        return f"{name}.py"
    return f"{name}/" if any((folder / name).glob("*.py")) else ""


def is_regular(folder: Path, name: str) -> bool:
    """Return whether a folder has a module that Python prefers to an installed package.

    The module and the package have this name.
    """
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def without_own(modules: Iterable[str], folders: Sequence[Path]) -> set[str]:
    """Return the modules that no folder of the code has."""
    return {
        module
        for module in modules
        if not any(module_file(folder, module.partition(".")[0]) for folder in folders)
    }


def small_worker(plan: Plan, option: str) -> Iterator[str]:
    """Yield a remark about a worker without requested CPUs; `option` requests more."""
    group = plan.groups[0]
    if group.requests.get("cpu") == _CPU and "OMP_NUM_THREADS" in group.env:
        threads = pluralize(int(group.env["OMP_NUM_THREADS"]), "thread")
        yield f"a worker requests {_CPU} CPU, and a rank has {threads}: {option} gives more"


def _instead_of_folder(folder: Path) -> str:
    """Return what to name in the place of a folder: the project in it, or one of its scripts."""
    if (folder / SPEC_NAME).is_file():
        return f"name the script in it, or to run the project: hvdchart deploy {folder}"
    scripts = sorted(str(each) for each in folder.glob("*.py"))
    if not scripts:
        return "it has no script; name one"
    if len(scripts) <= _MOST_SCRIPTS:
        return f"name a script in it, such as {join_names(scripts)}"
    return f"name one of its {len(scripts)} scripts, such as {', '.join(scripts[:_MOST_SCRIPTS])}"


def _has_gpus(spec: Plain) -> bool:
    """Return whether the nodes of a spec, which need not be valid, have GPUs."""
    nodes = value_at(spec, ("nodes",))
    return isinstance(nodes, list) and any(value_at(node, ("gpus",)) for node in nodes)


def read_text(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def script_tree(run: ScriptRun, default: DefaultImage | None, *, is_tagged: bool = False) -> Node:
    """Return the tree of a run's spec; the place of each value is its option.

    `default` is the image if the user names none. With `is_tagged`, lines of the output name their
    rank if the launcher is known to support that. Raises SpecError for an option that cannot be
    read, and for a setting that has no place.
    """
    workers = DEFAULT_WORKERS if run.workers is None else run.workers
    node: dict[str, Plain] = {"name": "worker", "count": workers}
    if not run.gpus:
        tuning = {"cpu": _CPU}
        node |= {"shared": True, "coresPerSocket": 1, "memory": "3Gi", "tuning": tuning}
    reference = default.reference if default else run.image or ""
    image = split_image(reference) if reference else {}
    if run.image:
        expected = "an image in lower case, such as registry.example/team/train:1"
        place = Place(f"--image {run.image}")
        if run.image.endswith((":", "@")):
            part = "digest" if run.image.endswith("@") else "tag"
            raise SpecError(str(place), "", f"its {part} is empty", f"a {part} at the end")
        dataclasses.replace(IMAGE, expected=expected).read(Node(place, image["repository"]), "")
    base: dict[str, Plain] = {
        "apiVersion": "hvdchart/v1",
        "name": run.name,
        "nodes": [node],
        "image": image,
        "volumes": {"output": {"emptyDir": {}}},
        "train": {"command": list(run.command)},
    }
    tree = from_plain(base, Place("hvdchart run"))
    if default:
        if not default.has_mpi:
            # Images with only a framework have no MPI, and these frameworks need none.
            tree = set_key(tree, ["launch", "mode"], "direct", Place("the default image"))
        tree = apply_settings(tree, default.settings)
    if is_tagged:
        place = Place("the output's tags")
        tree = set_key(tree, ["train", "env", TAG_OUTPUT], "1", place)
    for text, steps, value in _typed(run):
        tree = set_key(tree, steps, value, Place(text))
    return apply_settings(tree, run.settings)


def _typed(run: ScriptRun) -> Iterator[tuple[str, list[str], Plain]]:
    """Yield the settings of each option: its text, the steps of the key, the value."""
    if run.gpus:
        yield f"--gpus {run.gpus}", ["nodes", "0", "gpus"], run.gpus
    if run.cpu:
        text = f"--cpu {run.cpu}"
        yield text, ["nodes", "0", "tuning", "cpu"], run.cpu
        try:
            cores = max(cpu_millis(run.cpu) // 1000, 1)
        except ValueError:
            # The check of the request refuses it.
            cores = 1
        yield text, ["nodes", "0", "coresPerSocket"], cores
    if run.memory:
        key = ["tuning", "memory"] if run.gpus else ["memory"]
        yield f"--memory {run.memory}", ["nodes", "0", *key], run.memory
    for each in run.env or ():
        name, equals, value = each.partition("=")
        if not equals:
            raise SpecError(f"--env {each}", "", "there is no =", "NAME=VALUE")
        yield f"--env {each}", ["train", "env", name], value
    secrets = run.secrets or ()
    for each in secrets:
        name = each.partition(":")[0]
        place = Place(f"--secret {each}")
        OBJECT_NAME.read(Node(place, name), "")
    names = [each for each in secrets if ":" not in each]
    if names:
        # A list replaces another one.
        sources = [{"secretRef": {"name": name}} for name in names]
        yield f"--secret {names[0]}", ["values", "worker", "envFrom"], sources
    for index, each in enumerate(secrets):
        name, colon, path = each.partition(":")
        if colon:
            volume = {"secret": name, "mountPath": path, "readOnly": True}
            yield f"--secret {each}", ["volumes", f"secret-{index}"], volume
    mounted: set[str] = set()
    for each in run.volumes or ():
        name, volume = _volume(each)
        if name in mounted:
            problem = f"the volume {name} is given twice"
            raise SpecError(f"--volume {each}", "", problem, "another name")
        mounted.add(name)
        yield f"--volume {each}", ["volumes", name], volume


def _volume(text: str) -> tuple[str, Plain]:
    """Return the name of a volume, and its map in a spec. Raises SpecError for another text."""
    name, _, rest = text.partition("=")
    volume: dict[str, Plain] = {}
    if rest.endswith(":ro"):
        rest = rest.removesuffix(":ro")
        volume["readOnly"] = True
    kind, *parts = rest.split(":")
    if kind == "emptyDir":
        volume["emptyDir"] = {}
    elif kind == "nfs" and len(parts) > 1:
        server, path, *parts = parts
        volume["nfs"] = {"server": server, "path": path}
    elif kind in _SOURCES and parts and kind != "nfs":
        source, *parts = parts
        volume[kind] = source
    elif kind.startswith("/"):
        expected = f"`--volume {name}=hostPath:{rest}` for a folder of each node, or {_VOLUME}"
        raise SpecError(f"--volume {text}", "", "this is no volume", expected)
    else:
        raise SpecError(f"--volume {text}", "", "this is no volume", _VOLUME)
    if len(parts) > 1:
        raise SpecError(f"--volume {text}", "", "it has too many parts", _VOLUME)
    if parts:
        volume["mountPath"] = parts[0]
    elif name not in DEFAULT_MOUNTS:
        expected = f"`--volume {name}={rest}:/PATH{':ro' if 'readOnly' in volume else ''}`"
        raise SpecError(f"--volume {text}", "", "it has no path", expected)
    return name, volume
