"""What the answer to a wrong command line says besides: what was likely meant, and what to type."""

import re
import shlex
from collections.abc import Mapping
from difflib import SequenceMatcher
from itertools import dropwhile
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

# Typer brings its own copy of Click, or uses the one of the environment.
_UsageError: Any = typer.BadParameter.__base__
# From which ratio on two names differ by a slip. Below, they have some letters in common.
_ALIKE = 0.75
# By the name of the last argument, which takes the words of another program: what these are, and
# how many words come before them.
_FOREIGN = {
    "arguments": ("Arguments of the script", 1),
    "named": ("Arguments of the script", 1),
    "command": ("Options of the command in the pod", 2),
}
# The arguments that are names of runs.
_OF_RUNS = ("name", "names")

_GIVEN = "leave it out: each rank gets the address and its number as variables"
# Options of what starts scripts elsewhere, for commands that take a script: what to write instead.
# torchrun and others also take `_` for `-`.
_OF_OTHERS = {
    "--nnodes": "write --workers",
    "--num-nodes": "write --workers",
    "--nodes": "write --workers",
    "--replicas": "write --workers",
    "--nproc-per-node": "write --workers, or --gpus: each GPU of a worker gets a rank",
    "--node-selector": "write --set nodes.0.nodeSelector.KEY=VALUE",
    "--shm": "write --set tuning.shm=8Gi",
    "--shm-size": "write --set tuning.shm=8Gi",
    "--retries": "write --set train.retries=3",
    "--max-retries": "write --set train.retries=3",
    "--max-restarts": "write --set train.retries=3",
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

    They say where the words of a script, or of a command in a pod, go, which numbers an option
    takes, and what shows the names of runs.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the line of usage, without the braces that newer versions of Typer write."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line. Raises UsageError for a wrong one."""
        if "--workers" in self._takes_value(ctx):
            _refuse_starter(ctx, args)
        try:
            return super().parse_args(ctx, list(args))
        except _UsageError as error:
            # Of the errors, only that of an unknown option has them.
            if hasattr(error, "possibilities"):
                error.possibilities = None
                error.message += self._remedy(ctx, error.option_name, args)
            elif hasattr(error, "param_type"):
                # Only that of a missing argument has it, and nothing to say.
                error.message = _where_to_find(error.param)
            else:
                _expect_number(error)
            raise

    def _remedy(self, ctx: Any, unknown: str, args: list[str]) -> str:
        """The end of the sentence about an unknown option, and what to type."""
        instead = _OF_OTHERS.get(unknown.replace("_", "-"))
        if instead and "--workers" in self._takes_value(ctx):
            return f"; {instead}. Arguments of the script go after --"
        return self._meant(ctx, unknown) + self._line(ctx, args)

    def _takes_value(self, ctx: Any) -> dict[str, bool]:
        """The names of all options, and whether a value follows."""
        options: list[Any] = [
            each for each in self.get_params(ctx) if each.param_type_name == "option"
        ]
        names = {name: each for each in options for name in (*each.opts, *each.secondary_opts)}
        return {name: not each.is_flag for name, each in names.items()}

    def _meant(self, ctx: Any, unknown: str) -> str:
        """The end of the sentence: which option differs from an unknown one by a slip, if any."""
        alike = {
            name: SequenceMatcher(None, unknown, name).ratio() for name in self._takes_value(ctx)
        }
        best = max(alike, key=alike.__getitem__)
        return f". Did you mean {best}?" if alike[best] >= _ALIKE else "."

    def _line(self, ctx: Any, args: list[str]) -> str:
        """Where the words of another program go, and the line to type; empty where it has none."""
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        last = arguments[-1].name if arguments else None
        if last not in _FOREIGN:
            return ""
        what, before = _FOREIGN[last]
        own, foreign = _sort_words(args, self._takes_value(ctx), before)
        # A spec has no arguments.
        is_spec = last == "named" and not any(word.endswith(".py") for word in own[:1])
        if not foreign or is_spec:
            return ""
        line = shlex.join([*ctx.command_path.split(), *own, "--", *foreign])
        return f" {what} go after --: {line}"


def _where_to_find(parameter: Any) -> str:
    """What shows the values that an argument may have; empty where nothing does."""
    is_run = parameter.param_type_name == "argument" and parameter.name in _OF_RUNS
    return "`hvdchart list` shows the runs" if is_run else ""


def _expect_number(error: Any) -> None:
    """Let an error about a whole number say which ones its option takes."""
    parameter = getattr(error, "param", None)
    if parameter is None or not hasattr(parameter.type, "min"):
        return
    least = parameter.type.min
    most = parameter.type.max
    limits = f"from {least} to {most}" if most is not None else f"of at least {least}"
    # Its message is a sentence: '4x' is not a valid int range.
    given = error.message.rpartition(" is not ")[0]
    error.message = f"got {given}; expected a whole number {limits}"


def _refuse_starter(ctx: Any, args: list[str]) -> None:
    """Raise UsageError where the program that starts a script elsewhere is in its place."""
    words = list(dropwhile(lambda word: word.startswith("-"), args))
    # Most command lines name a script or a spec.
    if not words or words[0].endswith(".py") or Path(words[0]).exists():
        return
    # Imported here because few command lines come here.
    from hvdchart.spec.launchers import nested_launcher

    if not re.fullmatch("python[0-9.]*", words[0]) and not nested_launcher(words):
        return
    script = next((word for word in words if word.endswith(".py")), "SCRIPT")
    ctx.fail(f"{words[0]} is no script: `{ctx.command_path} {script}` starts the ranks itself")


def _sort_words(
    args: list[str], takes_value: Mapping[str, bool], before: int
) -> tuple[list[str], list[str]]:
    """The words of a command line that are the command's own, and those of another program.

    Its own are the first `before` words that are no options, and after them its options. An unknown
    option that comes before those words is nobody's: both lists are empty.
    """
    named: list[str] = []
    own: list[str] = []
    foreign: list[str] = []
    waiting = list(args)
    while waiting:
        word = waiting.pop(0)
        name, equals, _ = word.partition("=")
        if word == "--":
            return [*named, *own], [*foreign, *waiting]
        if not word.startswith("--") and word[:2] in takes_value and len(word) > 2:
            # Its value is joined to it, or other such options are.
            own.append(word)
        elif name in takes_value:
            own.append(word)
            if takes_value[name] and not equals and waiting:
                own.append(waiting.pop(0))
        elif word.startswith("-"):
            if len(named) < before:
                return [], []
            foreign.append(word)
            # Its values.
            while waiting and not waiting[0].startswith("-"):
                foreign.append(waiting.pop(0))
        elif len(named) < before:
            named.append(word)
        else:
            foreign.append(word)
    return [*named, *own], foreign
