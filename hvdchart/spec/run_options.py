"""Which option of `hvdchart run` sets which keys, and which argument of `hvdchart.launch` it is.

A run of a script has no spec that its user could open, so that messages about it name the options.
Other texts name keys of a spec or values of the chart; `in_options` words them for such a run.
`in_arguments` words texts with options for `hvdchart.launch`, whose user has no command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hvdchart.errors import SpecError
from hvdchart.spec.values_schema import schema_at, values_schema

# The annotation of the master's pod that says which command has made the run.
COMMAND = "hvdchart/command"
RUN = "run"
# What --fail-on-nan sets, also for the commands that have a spec.
FAIL_ON_NAN = "values.launch.failOnNaN"


@dataclass(frozen=True)
class RunOption:
    """An option: the keys of the spec that it sets, and what texts call these otherwise.

    The names are values of the chart, and keys as the warnings of a plan name them.
    """

    option: str
    keys: tuple[str, ...]
    names: tuple[str, ...] = ()


OPTIONS = (
    RunOption("--name", ("name",)),
    RunOption("--workers", ("nodes.0.count",), ("worker.number",)),
    RunOption("--gpus", ("nodes.0.gpus",), ("worker.slots", "tuning.slots", "nodes[].gpus")),
    RunOption(
        "--cpu",
        ("nodes.0.coresPerSocket", "nodes.0.tuning.cpu"),
        (
            "worker.resources.requests.cpu",
            "worker.resources.limits.cpu",
            "tuning.cpu",
            "nodes[].coresPerSocket",
        ),
    ),
    RunOption(
        "--memory",
        ("nodes.0.memory", "nodes.0.tuning.memory"),
        (
            "worker.resources.requests.memory",
            "worker.resources.limits.memory",
            "worker.resources",
            "tuning.memory",
            "nodes[].memory",
        ),
    ),
    RunOption("--image", ("image",), ("image.repository", "image.tag", "image.digest")),
    RunOption("--env", ("train.env",), ("worker.env", "train.env")),
    RunOption("--secret", ("values.worker.envFrom",), ("worker.envFrom",)),
    RunOption(
        "--volume",
        ("volumes",),
        ("volumeMounts", "volumes[].persistentVolumeClaim.claimName"),
    ),
    RunOption("--fail-on-nan", (FAIL_ON_NAN,), ("launch.failOnNaN", "launch.failOnNaN=true")),
    RunOption(":ro at the end", (), ("readOnly: true",)),
    RunOption("--volume output=pvc:CLAIM", (), ("volumes.output with a pvc",)),
)
# Values of the chart that another key of the spec sets; all others are below `values`.
_KEYS = {
    "imagePullSecrets": "image.pullSecrets",
    "image.pullPolicy": "image.pullPolicy",
    "nodeSelector": "nodes.0.nodeSelector",
    "tolerations": "nodes.0.tolerations",
    "master.activeDeadlineSeconds": "train.deadlineSeconds",
    "master.backoffLimit": "train.retries",
    "launch.workersTimeoutSeconds": "launch.workersTimeoutSeconds",
    "launch.options": "launch.options",
    "horovod.timeline": "horovod.timeline",
}


def option_of(key: str) -> str:
    """The option that sets a key of the spec, as `nodes[0].count` or `nodes.0.count`.

    The most special one counts; empty for a key that --set alone can set.
    """
    steps = re.sub(r"\[(\d+)\]", r".\1", key).split(".")
    best = ""
    longest = 0
    for each in OPTIONS:
        for own in each.keys:
            path = own.split(".")
            if longest < len(path) and steps[: len(path)] == path:
                best = each.option
                longest = len(path)
    return best


def in_options(text: str) -> str:
    """A text about a run of a script, with options where it names keys or values.

    What the script has said, what is quoted and what the user has typed stay.
    """
    text = _NAME_OR_LEFT.sub(_word, text)
    # Two keys that one option sets are named once.
    return re.sub(r"(--[a-z]+)(?:(?:,| and|, and) \1)+(?![\w.=-])", r"\1", text)


def _word(match: re.Match[str]) -> str:
    """The option for a name; all other texts as they are."""
    text = match[0]
    if match["name"] is None:
        return text
    return _WORDS.get(text) or (f"--set values.{text}" if _is_value(text) else text)


def _is_value(name: str) -> bool:
    """Whether the chart has this value below one of the objects of its values."""
    steps = name.split(".")
    schema = values_schema()
    first = schema_at(schema, steps[:1]) or {}
    has_steps = first.get("type") == "object" and "properties" in first
    return has_steps and schema_at(schema, steps) is not None


def in_words_of_run(error: SpecError) -> SpecError:
    """An error of the spec that `run` has made, with the options that the user typed."""
    errors = []
    for each in error.errors:
        if each.place.startswith("--set "):
            # Who types keys reads their names.
            errors.append(each)
            continue
        is_typed = each.place.startswith("--")
        option = option_of(each.path)
        place = each.place
        path = each.path
        if is_typed:
            path = ""
        elif option:
            place = option
            path = ""
        expected = in_options(each.expected)
        errors.append(SpecError(place, path, in_options(each.problem), expected))
    return SpecError.join(errors)


def in_words_of_launch(error: SpecError) -> SpecError:
    """An error of the spec that `hvdchart.launch` has made, with the names of its arguments."""
    errors = []
    for each in in_words_of_run(error).errors:
        # Both begin with what the user has given, or could give.
        place, expected = (_GIVEN.sub(_argument, text) for text in (each.place, each.expected))
        texts = [in_arguments(text) for text in (place, each.path, each.problem, expected)]
        errors.append(SpecError(*texts))
    return SpecError.join(errors)


def in_arguments(text: str) -> str:
    """A text with arguments of `hvdchart.launch` where it names options of the command."""
    return _OPTION.sub(lambda option: _ARGUMENTS.get(option[1]) or f"{_argument(option)}=", text)


def _argument(option: re.Match[str]) -> str:
    """The name of the argument of `hvdchart.launch` that is an option of `hvdchart run`."""
    name = option[1]
    return f"{name}s" if name in ("secret", "volume") else name


# Options that no argument has the name of.
_ARGUMENTS = {
    "create-namespace": "`kubectl create namespace`",
    "fail-on-nan": f"settings= with {FAIL_ON_NAN}=true",
    "force": "force=True",
    "set": "settings= with",
}
# The options of OPTIONS that arguments have the names of.
_NAMED = tuple(
    each.option.removeprefix("--")
    for each in OPTIONS
    if re.fullmatch(r"--[a-z-]+", each.option) and each.option.removeprefix("--") not in _ARGUMENTS
)
# Options of all commands are arguments, too.
_SHARED = ("code", "namespace", "context", "helm")
_OPTION = re.compile(
    rf"(?<![\w-])--({'|'.join((*_NAMED, *_SHARED, *_ARGUMENTS))})(?![\w-])(?: (?=PATH\b))?"
)
# An option before its value, or alone.
_GIVEN = re.compile(rf"^--({'|'.join(_NAMED)})(?= |$)")
_WORDS = {name: each.option for each in OPTIONS for name in each.names}
_WORDS |= {name: f"--set {key}" for name, key in _KEYS.items()}
_LISTED = "|".join(re.escape(name) for name in sorted(_WORDS, key=len, reverse=True))
# No part of a longer word or path, and nothing that is worded already.
_NAME = (
    rf"(?<![\w.=/-])(?<!--set )(?P<name>{_LISTED}|[a-zA-Z]\w*(?:\.[a-zA-Z]\w*)+)(?![\w-])(?!\.\w)"
)
# An exception of a rank up to its place, or to a remedy (the pods' master/causes.py); what is in
# quotes; and a command line in the log.
_LEFT = (
    r"(?:\brank \d+(?: on \S+)?|\ba rank): [\w.<>]+: (?:.*, [^\s,]+:\d+|[^;]*)"
    r"""|(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)"[^"\n]*"|(?<=\] )\$ .*"""
)
_NAME_OR_LEFT = re.compile(rf"{_LEFT}|{_NAME}")
