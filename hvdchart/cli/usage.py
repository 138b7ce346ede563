"""Add hints to the error of a wrong command line: the likely meaning, and what to type."""

import re
import shlex
from collections.abc import Mapping
from difflib import SequenceMatcher
from itertools import dropwhile
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

# Typer has its own copy of Click, or uses the one of the environment.
_UsageError: Any = typer.BadParameter.__base__
# The smallest ratio at which two names differ by a typing error. With a lower ratio, they only
# share some letters.
_MIN_TYPO_RATIO = 0.75
# By the name of the last argument, which takes the words of another program: a description of these
# words, and the number of words before them.
_FOREIGN = {
    "arguments": ("Arguments of the script", 1),
    "sources": ("Arguments of the script", 1),
    "command": ("Options of the command in the pod", 2),
}
# The arguments that are names of runs.
_RUN_NAME_ARGUMENTS = ("name", "names")

_GIVEN = "leave it out: each rank gets the address and its number as variables"
# Options of programs that start scripts elsewhere, for commands that take a script: what to write
# instead. torchrun and others also accept `_` for `-`.
_OF_OTHERS = {
    "--nnodes": "write --workers",
    "--num-nodes": "write --workers",
    "--nodes": "write --workers",
    "--replicas": "write --workers",
    "--nproc-per-node": "write --workers, or --gpus: each GPU of a worker gets a rank",
    "--node-selector": "write --set nodes.0.nodeSelector.KEY=VALUE",
    "--shm": "write --set tuning.shm=8Gi",
    "--shm-size": "write --set tuning.shm=8Gi",
    "--retries": "write --set train.backoffLimit=3",
    "--max-retries": "write --set train.backoffLimit=3",
    "--max-restarts": "write --set train.backoffLimit=3",
    "--requirements": "write --code FOLDER: its requirements.txt is installed",
    "--pip": "write --code FOLDER: its requirements.txt is installed",
    "-e": "write --env",
    "-v": "write --volume",
    "--node-rank": _GIVEN,
    "--master-addr": _GIVEN,
    "--master-port": _GIVEN,
    "--rdzv-endpoint": _GIVEN,
    "--rdzv-backend": _GIVEN,
    "--standalone": _GIVEN,
    "--dry-run": "`hvdchart plan` prints what would run",
    "--diff": "`hvdchart plan` prints what would run",
}


class Command(TyperCommand):
    """A command whose errors say what to type instead.

    The errors name the place for the words of a script or of a command in a pod, the numbers that
    an option accepts, and the command that lists the names of runs.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line without the braces of newer versions of Typer."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line. Raises UsageError for a wrong one."""
        if "--workers" in self._takes_value(ctx):
            _refuse_starter(ctx, args)
        try:
            return super().parse_args(ctx, list(args))
        except _UsageError as error:
            # Only the error of an unknown option has this attribute.
            if hasattr(error, "possibilities"):
                error.possibilities = None
                error.message += self._remedy(ctx, error.option_name, args)
            elif hasattr(error, "param_type"):
                # Only the error of a missing argument has this attribute, and it has no message.
                error.message = _where_to_find(error.param)
            else:
                _expect_number(error)
            raise

    def _remedy(self, ctx: Any, unknown: str, args: list[str]) -> str:
        """Return the end of the sentence about an unknown option, and what to type."""
        instead = _OF_OTHERS.get(unknown.replace("_", "-"))
        if instead and "--workers" in self._takes_value(ctx):
            return f"; {instead}. Arguments of the script go after --"
        return self._meant(ctx, unknown) + self._line(ctx, args)

    def _takes_value(self, ctx: Any) -> dict[str, bool]:
        """Return the names of all options, and whether a value follows each."""
        options: list[Any] = [
            option for option in self.get_params(ctx) if option.param_type_name == "option"
        ]
        names = {
            name: option for option in options for name in (*option.opts, *option.secondary_opts)
        }
        return {name: not option.is_flag for name, option in names.items()}

    def _meant(self, ctx: Any, unknown: str) -> str:
        """Return the end of the sentence: the option that was probably meant, if any."""
        alike = {
            name: SequenceMatcher(None, unknown, name).ratio() for name in self._takes_value(ctx)
        }
        best = max(alike, key=alike.__getitem__)
        return f". Did you mean {best}?" if alike[best] >= _MIN_TYPO_RATIO else "."

    def _line(self, ctx: Any, args: list[str]) -> str:
        """Explain where another program's words go, and what to type; empty without such words."""
        arguments = [
            parameter for parameter in self.params if parameter.param_type_name == "argument"
        ]
        last = arguments[-1].name if arguments else None
        if last not in _FOREIGN:
            return ""
        subject, before = _FOREIGN[last]
        command_words, foreign = _sort_words(args, self._takes_value(ctx), before)
        # A spec has no arguments.
        is_spec = last == "sources" and not any(word.endswith(".py") for word in command_words[:1])
        if not foreign or is_spec:
            return ""
        line = shlex.join([*ctx.command_path.split(), *command_words, "--", *foreign])
        return f" {subject} go after --: {line}"


def _where_to_find(parameter: Any) -> str:
    """Name the command that shows the values of an argument; empty if there is none."""
    is_run = parameter.param_type_name == "argument" and parameter.name in _RUN_NAME_ARGUMENTS
    return "`hvdchart list` shows the runs" if is_run else ""


def _expect_number(error: Any) -> None:
    """Add the numbers that the option accepts to an error about a whole number."""
    parameter = getattr(error, "param", None)
    if parameter is None or not hasattr(parameter.type, "min"):
        return
    least = parameter.type.min
    most = parameter.type.max
    limits = f"from {least} to {most}" if most is not None else f"of at least {least}"
    # Its message is a sentence: '4x' is not a valid int range.
    value = error.message.rpartition(" is not ")[0]
    error.message = f"got {value}; expected a whole number {limits}"


def _refuse_starter(ctx: Any, args: list[str]) -> None:
    """Raise UsageError if the script's place has a program that starts scripts elsewhere."""
    words = list(dropwhile(lambda word: word.startswith("-"), args))
    # Most command lines name a script or a spec.
    if not words or words[0].endswith(".py") or Path(words[0]).exists():
        return
    # Imported here because few command lines get this far.
    from hvdchart.spec.launchers import nested_launcher

    if not re.fullmatch("python[0-9.]*", words[0]) and not nested_launcher(words):
        return
    script = next((word for word in words if word.endswith(".py")), "SCRIPT")
    ctx.fail(f"{words[0]} is no script: `{ctx.command_path} {script}` starts the ranks itself")


def _sort_words(
    args: list[str], takes_value: Mapping[str, bool], before: int
) -> tuple[list[str], list[str]]:
    """Split a command line into the command's own words and those of another program.

    Its own words are the first `before` words that are no options, and the options after them. If
    an unknown option comes before those words, both lists are empty.
    """
    named: list[str] = []
    options: list[str] = []
    foreign: list[str] = []
    waiting = list(args)
    while waiting:
        word = waiting.pop(0)
        name, equals, _ = word.partition("=")
        if word == "--":
            return [*named, *options], [*foreign, *waiting]
        if not word.startswith("--") and word[:2] in takes_value and len(word) > 2:
            # The word contains its value, or several short options.
            options.append(word)
        elif name in takes_value:
            options.append(word)
            if takes_value[name] and not equals and waiting:
                options.append(waiting.pop(0))
        elif word.startswith("-"):
            if len(named) < before:
                return [], []
            foreign.append(word)
            # The values of the option.
            while waiting and not waiting[0].startswith("-"):
                foreign.append(waiting.pop(0))
        elif len(named) < before:
            named.append(word)
        else:
            foreign.append(word)
    return [*named, *options], foreign
