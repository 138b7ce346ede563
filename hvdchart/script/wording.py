"""Messages for users without a spec: of `hvdchart run` and `hvdchart.launch`.

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
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.script.options import RUN_OPTIONS, ScriptRun
from hvdchart.spec.values_schema import schema_at, values_schema

# Options whose argument is a list or a map.
_LIST_OPTIONS = ("--env", "--secret", "--volume", "--set")
_ARGUMENTS = {option.option: option.argument for option in RUN_OPTIONS}
_OPTION_OF_KEY = {key: option.option for option in RUN_OPTIONS for key in option.keys}
# Names of the chart and of Kubernetes that another key of a spec, or a part of its value, sets.
_OPTION_OF_NAME = {
    "imagePullSecrets": "--set image.pullSecrets",
    "nodeSelector": "--set nodes.0.nodeSelector",
    "tolerations": "--set nodes.0.tolerations",
    "master.activeDeadlineSeconds": "--set train.activeDeadlineSeconds",
    "master.backoffLimit": "--set train.backoffLimit",
    "readOnly: true": ":ro",
    "volumes.output.pvc": "--volume output=pvc:CLAIM",
}
_OPTION_OF_NAME |= {name: option.option for option in RUN_OPTIONS for name in option.names}
# A key that is a single word is left out: it may be any word of a rank's message.
_OPTION_OF_NAME |= {
    key.removeprefix("values.").replace(".0.", "[]."): option
    for key, option in _OPTION_OF_KEY.items()
    if "." in key
}
# A name, and the value that it gets: worker.slots, launch.mode: direct, launch.failOnNaN=true.
_MARKED_NAME = re.compile(r"`(?P<name>[\w.[\]]+)(?:(?:=|: )(?P<value>[^`\n]+))?`")
_MARKED_OPTION = re.compile(r"`(?P<option>--[a-z-]+)(?: (?P<value>[^`\n]+))?`")
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


def name_options(text: str, typed: Collection[str] = ()) -> str:
    """Replace marked values and keys by options, in a text about a run of a script.

    If adjacent names become the same option, it is named once. `typed` are words with marks that
    the user has written, such as in a path: they are no names.
    """
    return _REPEATED.sub(r"\1", _sub(_MARKED_NAME, _option, text, typed))


def name_arguments(text: str, typed: Collection[str] = ()) -> str:
    """Replace marked options of the command in a text by arguments of `hvdchart.launch`."""
    return _sub(_MARKED_OPTION, _argument, text, typed)


def marked_words(run: ScriptRun) -> frozenset[str]:
    """Return what is between backticks in the options of a run, with the backticks."""
    typed = [run.image, run.name, run.cpu, run.memory]
    several = (run.command, run.settings, run.env, run.secrets, run.volumes)
    texts = [*filter(None, typed), *(text for listed in several for text in listed or ())]
    return frozenset(f"`{word}`" for text in texts for word in _MARKED.findall(text))


def rephrase_for_run(error: SpecError, run: ScriptRun) -> SpecError:
    """Reword an error of the spec made by `run`: name the options that the user typed."""
    typed = marked_words(run)
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
        expected = name_options(single.expected, typed)
        errors.append(SpecError(place, path, name_options(single.problem, typed), expected))
    return SpecError.join(errors)


def rephrase_for_launch(error: SpecError, run: ScriptRun) -> SpecError:
    """Reword an error of the spec made by `hvdchart.launch`: name its arguments."""
    typed = marked_words(run)
    errors = []
    for single in rephrase_for_run(error, run).errors:
        option, _, rest = single.place.partition(" ")
        place = single.place
        if option in _ARGUMENTS:
            place = f"{_ARGUMENTS[option].removesuffix('=')} {rest}".strip()
        problem = name_arguments(single.problem, typed)
        errors.append(
            SpecError(place, single.path, problem, name_arguments(single.expected, typed))
        )
    return SpecError.join(errors)


def _sub(
    names: re.Pattern[str],
    replace: Callable[[re.Match[str]], str],
    text: str,
    typed: Collection[str],
) -> str:
    """Replace the names in a text, but not the words that are the user's own."""
    return names.sub(lambda match: match[0] if match[0] in typed else replace(match), text)


def _option(match: re.Match[str]) -> str:
    """Return the option for a marked name in a run of a script; without one, the text unchanged."""
    word = _OPTION_OF_NAME.get(match[0].strip("`").removeprefix("values."))
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
    if value and option in _LIST_OPTIONS:
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
