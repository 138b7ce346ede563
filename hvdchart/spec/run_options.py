"""The options of a script, and messages for users without a spec: of `hvdchart run` and `launch`.

The fields of `ScriptRun` are the options of each command that takes a script, and the settings of
`hvdchart.launch`.

Messages mark names with backticks, as Markdown does: values of the chart, keys of a spec, options
of the command. A run of a script has no spec that its user could open. So `name_options` replaces
marked values and keys by options. `name_arguments` replaces marked options by arguments of
`hvdchart.launch`, whose user has no command line. A replaced name keeps its backticks. Unmarked or
unknown names are unchanged. So the messages of ranks are unchanged, unless they contain exactly the
name of a value between backticks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.spec.values_schema import schema_at, values_schema

# The value of the annotation `contract.COMMAND` in the runs of `hvdchart run`.
RUN = "run"
# The key that --fail-on-nan sets, also for commands that have a spec.
FAIL_ON_NAN = "values.launch.failOnNaN"


# The value of resources.json. It is repeated because --help must work in a broken installation,
# too.
MAX_WORKERS = 10_000
# The number of workers of a script without --workers.
DEFAULT_WORKERS = 2


@dataclass(frozen=True)
class RunOption:
    """An option, its argument of `launch`, the keys of the spec that it sets, and other names.

    The other names are values of the chart, and names that the option replaces in a run of a
    script. `shown` is how the command shows and checks an option of a script: the arguments of
    `typer.Option`.
    """

    option: str
    argument: str
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    shown: Mapping[str, Any] = field(default_factory=dict)


def _script_option(
    option: str, keys: Sequence[str], names: Sequence[str] = (), **shown: Any
) -> Any:
    """Return the field of an option of a script: see `RunOption`."""
    metadata = {"option": option, "keys": tuple(keys), "names": tuple(names), "shown": shown}
    return field(default=None, metadata=metadata)


@dataclass(frozen=True)
class ScriptRun:
    """A run of a script, and its options as they were typed; None and empty ones were not given."""

    command: Sequence[str] = ()
    settings: Sequence[str] = ()
    workers: int | None = _script_option(
        "--workers",
        ["nodes.0.count"],
        ["worker.number"],
        min=1,
        max=MAX_WORKERS,
        metavar="N",
        help=f"Number of workers (default: {DEFAULT_WORKERS}).",
    )
    gpus: int | None = _script_option(
        "--gpus",
        ["nodes.0.gpus"],
        ["worker.slots", "nodes[].tuning.slots"],
        min=0,
        max=64,
        metavar="N",
        help="GPUs of each worker, with a rank on each (default: none).",
    )
    cpu: str | None = _script_option(
        "--cpu",
        ["nodes.0.coresPerSocket", "nodes.0.tuning.cpu"],
        ["worker.resources.requests.cpu", "worker.resources.limits.cpu"],
        metavar="CPUS",
        help="CPUs of each worker, such as 4 (default: 250m; with --gpus, no request).",
    )
    memory: str | None = _script_option(
        "--memory",
        ["nodes.0.memory", "nodes.0.tuning.memory"],
        [
            "worker.resources",
            "worker.resources.requests.memory",
            "worker.resources.limits.memory",
        ],
        metavar="SIZE",
        help="Memory of each worker, such as 8Gi (default: 3Gi; with --gpus, no request).",
    )
    image: str | None = _script_option(
        "--image",
        ["image"],
        ["image.repository", "image.tag"],
        envvar="HVDCHART_IMAGE",
        metavar="IMAGE",
        help="Image of the pods (default: a public one of the framework that the script imports).",
    )
    env: list[str] | None = _script_option(
        "--env",
        ["train.env"],
        ["worker.env"],
        metavar="NAME=VALUE",
        help="Variable of the ranks; can be repeated.",
    )
    secrets: list[str] | None = _script_option(
        "--secret",
        ["values.worker.envFrom"],
        metavar="NAME[:/PATH]",
        help="A Secret, whose keys become variables, or files in /PATH; can be repeated.",
    )
    volumes: list[str] | None = _script_option(
        "--volume",
        ["volumes"],
        metavar="NAME=SOURCE",
        help="A volume, such as data=pvc:CLAIM:/data:ro, output=pvc:CLAIM "
        "or cache=hostPath:/mnt/cache:/cache; can be repeated.",
    )
    name: str | None = _script_option(
        "--name",
        ["name"],
        metavar="NAME",
        help="Name of the run, also to replace an active one (default: that of the script).",
    )


# The options of a script by their fields in `ScriptRun`.
SCRIPT_OPTIONS = {
    each.name: RunOption(argument=f"{each.name}=", **each.metadata)
    for each in fields(ScriptRun)
    if each.metadata
}
OPTIONS = (
    *SCRIPT_OPTIONS.values(),
    RunOption("--code", "code=", ("values.code.files", "values.code.archive")),
    RunOption(
        "--fail-on-nan",
        f'settings=["{FAIL_ON_NAN}=true"]',
        (FAIL_ON_NAN,),
        ("launch.failOnNaN=true",),
    ),
    RunOption("--set", "settings="),
    RunOption("--namespace", "namespace="),
    RunOption("--context", "context="),
    RunOption("--helm", "helm="),
    RunOption("--force", "force=True"),
    RunOption("--create-namespace", "kubectl create namespace"),
)
# Options whose argument is a list or a map.
_SEVERAL = ("--env", "--secret", "--volume", "--set")
_ARGUMENTS = {each.option: each.argument for each in OPTIONS}
_OPTION_OF_KEY = {key: each.option for each in OPTIONS for key in each.keys}
# Names of the chart and of Kubernetes that another key of a spec, or a part of its value, sets.
_WORDS = {
    "imagePullSecrets": "--set image.pullSecrets",
    "nodeSelector": "--set nodes.0.nodeSelector",
    "tolerations": "--set nodes.0.tolerations",
    "master.activeDeadlineSeconds": "--set train.activeDeadlineSeconds",
    "master.backoffLimit": "--set train.backoffLimit",
    "readOnly: true": ":ro",
    "volumes.output.pvc": "--volume output=pvc:CLAIM",
}
_WORDS |= {name: each.option for each in OPTIONS for name in each.names}
# A key that is a single word is left out: it may be any word of a rank's message.
_WORDS |= {
    key.removeprefix("values.").replace(".0.", "[]."): option
    for key, option in _OPTION_OF_KEY.items()
    if "." in key
}
# A name, and the value that it gets: worker.slots, launch.mode: direct, launch.failOnNaN=true.
_NAME = re.compile(r"`(?P<name>[\w.[\]]+)(?:(?:=|: )(?P<value>[^`\n]+))?`")
_OPTION = re.compile(r"`(?P<option>--[a-z-]+)(?: (?P<value>[^`\n]+))?`")
# Each pair of backticks; the second one may begin another pair.
_MARKED = re.compile(r"`([^`\n]*)(?=`)")
# Repeated names that one option sets.
_REPEATED = re.compile(r"(`--[^`\n]+`)(?:(?:,| and|, and) \1)+")


def option_of(key: str) -> str:
    """Return the option that sets a key of the spec: `nodes[0].count` or `nodes.0.count`.

    The most specific option counts; empty for a key that only --set can set.
    """
    steps = re.sub(r"\[(\d+)\]", r".\1", key).split(".")
    above = (".".join(steps[:length]) for length in range(len(steps), 0, -1))
    return next((_OPTION_OF_KEY[path] for path in above if path in _OPTION_OF_KEY), "")


def name_options(text: str, own: Collection[str] = ()) -> str:
    """Replace marked values and keys by options, in a text about a run of a script.

    If adjacent names become the same option, it is named once. `own` are words with marks that the
    user has written, such as in a path: they are no names.
    """
    return _REPEATED.sub(r"\1", _sub(_NAME, _option, text, own))


def name_arguments(text: str, own: Collection[str] = ()) -> str:
    """Replace marked options of the command in a text by arguments of `hvdchart.launch`."""
    return _sub(_OPTION, _argument, text, own)


def marked_words(run: ScriptRun) -> frozenset[str]:
    """Return what is between backticks in the options of a run, with the backticks."""
    typed = [run.image, run.name, run.cpu, run.memory]
    several = (run.command, run.settings, run.env, run.secrets, run.volumes)
    texts = [*filter(None, typed), *(each for listed in several for each in listed or ())]
    return frozenset(f"`{word}`" for text in texts for word in _MARKED.findall(text))


def rephrase_for_run(error: SpecError, run: ScriptRun) -> SpecError:
    """Reword an error of the spec made by `run`: name the options that the user typed."""
    own = marked_words(run)
    errors = []
    for single in error.errors:
        if single.place.startswith("--set "):
            # A user who types keys knows their names.
            errors.append(single)
            continue
        is_typed = single.place.startswith("--")
        option = option_of(single.path)
        place = single.place
        path = single.path
        if is_typed:
            path = ""
        elif option:
            place = option
            path = ""
        expected = name_options(single.expected, own)
        errors.append(SpecError(place, path, name_options(single.problem, own), expected))
    return SpecError.join(errors)


def rephrase_for_launch(error: SpecError, run: ScriptRun) -> SpecError:
    """Reword an error of the spec made by `hvdchart.launch`: name its arguments."""
    own = marked_words(run)
    errors = []
    for single in rephrase_for_run(error, run).errors:
        option, _, rest = single.place.partition(" ")
        place = single.place
        if option in _ARGUMENTS:
            place = f"{_ARGUMENTS[option].removesuffix('=')} {rest}".strip()
        problem = name_arguments(single.problem, own)
        errors.append(SpecError(place, single.path, problem, name_arguments(single.expected, own)))
    return SpecError.join(errors)


def _sub(
    names: re.Pattern[str],
    replace: Callable[[re.Match[str]], str],
    text: str,
    own: Collection[str],
) -> str:
    """Replace the names in a text, but not the words that are the user's own."""
    return names.sub(lambda match: match[0] if match[0] in own else replace(match), text)


def _option(match: re.Match[str]) -> str:
    """Return the option for a marked name in a run of a script; without one, the text unchanged."""
    word = _WORDS.get(match[0].strip("`").removeprefix("values."))
    key = _key(match["name"])
    if not word and key:
        value = match["value"]
        word = f"--set {key}={value}" if value else f"--set {key}"
    return f"`{word}`" if word else match[0]


def _argument(match: re.Match[str]) -> str:
    """Return the argument for a marked option; without one in `launch`, the text unchanged."""
    option = match["option"]
    value = match["value"] or ""
    argument = _ARGUMENTS.get(option)
    if argument is None:
        return match[0]
    if value and option in _SEVERAL:
        return f"`{argument}` with `{value}`"
    return f"`{argument}{value}`"


def _key(name: str) -> str:
    """Return the key of a spec, for --set, that sets a name; empty for an unknown name."""
    path = name.replace("[]", ".0")
    if _has(_spec_schema(), path):
        return path
    path = path.removeprefix("values.")
    return f"values.{path}" if _has(values_schema(), path) else ""


def _has(schema: Mapping[str, Any], path: str) -> bool:
    """Return whether a schema has this path, below an object that lists its keys."""
    steps = [int(step) if step.isdecimal() else step for step in path.split(".")]
    # nodes.0 is such an object.
    top = 2 if len(steps) > 1 and isinstance(steps[1], int) else 1
    above = schema_at(schema, steps[:top]) or {}
    return "properties" in above and len(steps) > top and schema_at(schema, steps) is not None


@functools.cache
def _spec_schema() -> dict[str, Any]:
    """Return the JSON schema of a spec."""
    from hvdchart.spec.fields import ObjectOf
    from hvdchart.spec.model import Spec

    return ObjectOf(Spec).schema()
