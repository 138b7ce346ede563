"""The spec of a script that has none: what the options of `hvdchart run` say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdchart.errors import FileError, SpecError
from hvdchart.files import write_atomically
from hvdchart.plan.framework import used_modules
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import plan_tree
from hvdchart.project.default_images import DefaultImage, default_image
from hvdchart.quantity import cpu_millis
from hvdchart.spec.fields import OBJECT_NAME, nearest
from hvdchart.spec.overlays import apply_settings, merge_specs, set_key
from hvdchart.spec.run_options import COMMAND, RUN, in_options, in_words_of_run
from hvdchart.spec.yaml_tree import Node, Place, Plain, from_plain
from hvdchart.text import split_image
from hvdchart.values.render import dump

_VOLUME = (
    "NAME=pvc:CLAIM:/PATH, NAME=hostPath:/FOLDER:/PATH, NAME=nfs:SERVER:/FOLDER:/PATH, "
    "NAME=configMap:MAP:/PATH or NAME=emptyDir:/PATH, with :ro at the end to mount it read-only"
)
_SOURCES = ("pvc", "hostPath", "nfs", "configMap")
_SAVED = """\
# Written by `hvdchart run --save-spec`. To run it again:
#   hvdchart deploy {file} --code {code}
"""


@dataclass(frozen=True)
class ScriptRun:
    """What the options of `hvdchart run` say, as they were typed; empty ones were not."""

    command: Sequence[str]
    name: str
    workers: int = 2
    gpus: int = 0
    image: str = ""
    cpu: str = ""
    memory: str = ""
    env: Sequence[str] = ()
    secrets: Sequence[str] = ()
    volumes: Sequence[str] = ()
    settings: Sequence[str] = ()


@dataclass(frozen=True)
class ScriptPlan:
    """The plan of a script, the spec that it was made of, and the image that was chosen for it.

    `image` is None where the user has named one.
    """

    plan: Plan
    spec: Node
    image: DefaultImage | None

    @property
    def warnings(self) -> list[str]:
        """The warnings of the plan, in the words of the options."""
        return [in_options(each.removeprefix("group worker: ")) for each in self.plan.warnings]

    def save(self, file: Path, code: Path) -> None:
        """Write the spec. Raises FileError for a file that exists or cannot be written."""
        if file.exists():
            raise FileError(
                f"--save-spec {file}: exists already; choose another name, or remove it"
            )
        text = _SAVED.format(file=file, code=code)
        write_atomically(file, text + dump(self.spec.plain, {}))


def script_command(script: Path, code: Path | None, arguments: Sequence[str] = ()) -> list[str]:
    """The command that runs a script where its code is: itself alone, or the folder `code`.

    Raises FileError for a script that is no file, or that is not in the folder.
    """
    if script.is_dir():
        raise FileError(
            f"{script} is a folder: name the script in it, or to run a project: "
            f"hvdchart deploy {script}"
        )
    if not script.is_file():
        near = ""
        if script.parent.is_dir():
            others = [each.name for each in script.parent.iterdir() if each.is_file()]
            near = nearest(script.name, sorted(others))
        raise FileError(f"{script}: no such file{near}")
    shown = script.name
    if code is not None and code.resolve() != script.resolve():
        if not script.resolve().is_relative_to(code.resolve()):
            raise FileError(f"--code {code}: does not contain {script}")
        shown = script.resolve().relative_to(code.resolve()).as_posix()
    return ["python3", shown, *arguments]


def script_name(script: Path) -> str:
    """The name of a script's run where none is given."""
    return re.sub("[^a-z0-9]+", "-", script.stem.lower()).strip("-")


def plan_script(
    run: ScriptRun, values: Mapping[str, Plain], *, is_marked: bool = False
) -> ScriptPlan:
    """The plan of a script; `values` are those of the chart that the command adds, with the code.

    With `is_marked`, messages about the run have the words of `hvdchart run`. Raises
    SpecError, which names the options that were typed.
    """
    default = None
    if not run.image:
        uses = used_modules(values.get("code"), run.command)
        default = default_image(uses, has_gpus=run.gpus > 0)
    try:
        spec = script_tree(run, default, is_tagged=True)
        marks = {"master": {"podAnnotations": {COMMAND: RUN}}} if is_marked else {}
        place = Place("the given values")
        tree = merge_specs(
            [spec, *(from_plain({"values": each}, place) for each in (marks, values))]
        )
        return ScriptPlan(plan_tree(tree), spec, default)
    except SpecError as error:
        raise in_words_of_run(error) from error


def script_tree(run: ScriptRun, default: DefaultImage | None, *, is_tagged: bool = False) -> Node:
    """The tree of a run's spec, in which each value has its option for a place.

    `default` is the image where the user names none. With `is_tagged`, lines of the output name
    their rank, where it is known that the launcher can do that. Raises SpecError for an option that
    cannot be read, and for a setting that has no place.
    """
    node: dict[str, Plain] = {"name": "worker", "count": run.workers}
    if not run.gpus:
        tuning = {"cpu": "250m"}
        node |= {"shared": True, "coresPerSocket": 1, "memory": "3Gi", "tuning": tuning}
    reference = default.reference if default else run.image
    base = {
        "apiVersion": "hvdchart/v1",
        "name": run.name,
        "nodes": [node],
        "image": split_image(reference),
        "volumes": {"output": {"emptyDir": {}}},
        "train": {"command": list(run.command)},
    }
    tree = from_plain(base, Place("hvdchart run"))
    if default:
        if not default.has_mpi:
            # No image of a framework alone has an MPI, and these need none.
            tree = set_key(tree, ["launch", "mode"], "direct", Place("the default image"))
        tree = apply_settings(tree, default.settings)
    if is_tagged:
        place = Place("the output's tags")
        tree = set_key(tree, ["train", "env", "TAG_OUTPUT"], "1", place)
        if default and default.has_mpi:
            # Its MPI is Open MPI.
            tree = set_key(tree, ["launch", "options"], ["--tag-output"], place)
    for text, steps, value in _typed(run):
        tree = set_key(tree, steps, value, Place(text))
    return apply_settings(tree, run.settings)


def _typed(run: ScriptRun) -> Iterator[tuple[str, list[str], Plain]]:
    """What each option sets: its text, the steps of the key, the value."""
    if run.gpus:
        yield f"--gpus {run.gpus}", ["nodes", "0", "gpus"], run.gpus
    if run.cpu:
        text = f"--cpu {run.cpu}"
        yield text, ["nodes", "0", "tuning", "cpu"], run.cpu
        try:
            cores = max(cpu_millis(run.cpu) // 1000, 1)
        except ValueError:
            # The request is refused.
            cores = 1
        yield text, ["nodes", "0", "coresPerSocket"], cores
    if run.memory:
        key = ["tuning", "memory"] if run.gpus else ["memory"]
        yield f"--memory {run.memory}", ["nodes", "0", *key], run.memory
    for each in run.env:
        name, equals, value = each.partition("=")
        if not equals:
            raise SpecError(f"--env {each}", "", "there is no =", "NAME=VALUE")
        yield f"--env {each}", ["train", "env", name], value
    for each in run.secrets:
        name = each.partition(":")[0]
        place = Place(f"--secret {each}")
        OBJECT_NAME.read(Node(place, name), "")
    names = [each for each in run.secrets if ":" not in each]
    if names:
        # A list replaces another one.
        sources = [{"secretRef": {"name": name}} for name in names]
        yield f"--secret {names[0]}", ["values", "worker", "envFrom"], sources
    for index, each in enumerate(run.secrets):
        name, colon, path = each.partition(":")
        if colon:
            volume = {"secret": name, "mountPath": path, "readOnly": True}
            yield f"--secret {each}", ["volumes", f"secret-{index}"], volume
    for each in run.volumes:
        name, volume = _volume(each)
        yield f"--volume {each}", ["volumes", name], volume


def _volume(text: str) -> tuple[str, Plain]:
    """The name of a volume, and its map in a spec. Raises SpecError for another text."""
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
    else:
        raise SpecError(f"--volume {text}", "", "this is no volume", _VOLUME)
    if len(parts) > 1:
        raise SpecError(f"--volume {text}", "", "it has too many parts", _VOLUME)
    if parts:
        volume["mountPath"] = parts[0]
    return name, volume
