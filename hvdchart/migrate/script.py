"""Convert a script: its `#SBATCH` header, and the line of one launcher. Nothing is run.

The script becomes a map of its lines, so that each line has its entry in the ledger. Lines beside
the launcher's are dropped, and a check says what to do instead. A script in which a line controls
how the launcher runs, such as a loop or a condition, is refused, and so is a launcher's line that
needs a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS
from hvdchart.errors import SpecError
from hvdchart.migrate.carry_over import carry_over_line, carry_over_size, list_exports
from hvdchart.migrate.hide_values import hide_values
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, workers_and_slots
from hvdchart.migrate.lines import LAUNCHERS, SRUN, parse_line
from hvdchart.migrate.pods import RUN_AS_ROOT
from hvdchart.migrate.shell_words import split_line
from hvdchart.migrate.slurm import SBATCH, header_lines, read_sbatch_line, sbatch_lines
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import MAX_INPUT_BYTES, Node, SourcePlace, shorten

_EXPECTED_LINE = f"one line that begins with {', '.join(LAUNCHERS[:-1])} or {LAUNCHERS[-1]}"
# Also other launchers, so that none of their lines is dropped.
_PROGRAMS = "|".join(map(re.escape, LAUNCHER_OPTIONS["programs"]))
_LAUNCHER = rf"(?:/[^\s;&|(!]*/)?(?:{_PROGRAMS})(?!\S)"
# YAML has no such unindented line.
_LAUNCH_LINE = re.compile(rf"^{_LAUNCHER}", re.M)
# What begins a command of several lines or parts.
_COMPOUND = re.compile(
    r"(?:if|for|while|until|case|select|function|coproc|!|\{|\[\[)(?!\S)|\(|\w+\s*\(\)"
)
# What a launcher may follow: variables, and programs that start another one.
_BEFORE = r"(?:(?:\w+=(?:\"[^\"]*\"|'[^']*'|[^\s;&|\"'])*|command|env|exec|nohup|sudo|time)\s+)*"
_LATER_LAUNCH = re.compile(rf"(?:^|[;&|(!])\s*{_BEFORE}{_LAUNCHER}")
# Lines for PBS, LSF, Grid Engine, Fujitsu's and IBM's batch systems.
_OTHER_BATCH = re.compile(r"^#(?:PBS|BSUB|\$|PJM|@)[ \t].*", re.M)
# A command, which may go on after a backslash at the end of a line.
_COMMAND_LINES = re.compile(r"^[ \t]*([^\s#](?:.*\\\n)*.*)", re.M)


def is_script(data: bytes) -> bool:
    """Return whether a file is a script, by its header or by the line of a launcher."""
    text = data[:MAX_INPUT_BYTES].decode(errors="replace")
    return text.startswith("#!") or bool(header_lines(text) or _LAUNCH_LINE.search(text))


def migrate_script(data: bytes, file: str, schema: Mapping[str, Any]) -> Ledger:
    """Migrate a script; `schema` is that of the chart's values. Raises SpecError."""
    text = _read_text(data, file)
    header = header_lines(text)
    directives = sbatch_lines(text.split("\n"))
    commands = _read_lines(text)
    nodes = {
        f"line {number}": Node(SourcePlace(file, number, 1), line, line)
        for number, line in sorted({**directives, **commands}.items())
    }
    ledger = Ledger(Node(SourcePlace(file), nodes), schema)
    size = _read_header(ledger, header)
    if unread := _OTHER_BATCH.findall(text):
        ledger.add_check(
            f"lines for another batch system are not read ({', '.join(unread)}): set worker.number "
            "and worker.slots to what they request"
        )
    for number in sorted(directives.keys() - header):
        ledger.drop((f"line {number}",), "Slurm reads no line after a command")
    launches = {number: line for number, line in commands.items() if _LAUNCH_LINE.match(line)}
    others = {number: line for number, line in commands.items() if number not in launches}
    _drop_lines(ledger, others)
    if len(launches) > 1:
        first, second, *_ = launches
        problem = f"a second line that starts a training, after line {first}"
        raise ledger.error((f"line {second}",), problem, "one such line")
    if not launches:
        begin = shorten(hide_values(next(iter(commands.values()), "nothing")))
        problem = f"no line begins with a launcher; the file begins with {begin}"
        raise SpecError(file, "", problem, _EXPECTED_LINE)
    for number, line in launches.items():
        _carry_over(ledger, (f"line {number}",), line, size)
    ledger.close()
    return ledger


def _read_text(data: bytes, file: str) -> str:
    if len(data) > MAX_INPUT_BYTES:
        raise SpecError(file, "", "the file is too long", f"at most {MAX_INPUT_BYTES} bytes")
    try:
        text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SpecError(file, "", "the file is not UTF-8", "text") from None
    for index, char in enumerate(text):
        if not char.isprintable() and char not in "\n\t":
            place = str(SourcePlace(file, text.count("\n", 0, index) + 1, 1))
            raise SpecError(place, "", f"the character {char!a}", "printable text")
    return text


def _read_header(ledger: Ledger, header: Mapping[int, str]) -> LineSize:
    """Return the size that the lines of a header request. Raises SpecError."""
    size = LineSize()
    for number, line in header.items():
        try:
            size = read_sbatch_line(line, size)
        except NotUnderstoodError as error:
            expected = "one number of nodes, tasks and tasks per node"
            raise ledger.error((f"line {number}",), str(error), expected) from None
        ledger.drop((f"line {number}",), "a line for Slurm")
    if header:
        shown = [hide_values(line.removeprefix(SBATCH).strip()) for line in header.values()]
        ledger.add_check(
            f"the lines for Slurm are dropped ({', '.join(shown)}): worker.number, worker.slots "
            "and worker.resources say what a run gets"
        )
    return size


def _read_lines(text: str) -> dict[int, str]:
    """Return the lines with commands by number, each with the lines in which it continues."""
    return {
        text.count("\n", 0, command.start()) + 1: command[1].replace("\\\n", "")
        for command in _COMMAND_LINES.finditer(text)
    }


def _drop_lines(ledger: Ledger, lines: Mapping[int, str]) -> None:
    """Drop lines that start no training; add a check that names what the ranks may need.

    Raises SpecError for a loop and the like.
    """
    for number, line in lines.items():
        path = (f"line {number}",)
        problem = ""
        if beginning := _COMPOUND.match(line) or re.search("<<", line):
            problem = f"{beginning[0]} begins more than a simple command"
        elif _LATER_LAUNCH.search(line):
            problem = f"a launcher follows another command: {shorten(hide_values(line))}"
        try:
            shlex.split(line, comments=True)
        except ValueError:
            problem = problem or "a quote is not closed in this line"
        if problem:
            raise ledger.error(path, problem, f"a script without it, with {_EXPECTED_LINE}")
        ledger.drop(path, "the chart runs the launcher alone")
    if lines:
        # The value of a variable may be a secret.
        named = [
            f"line {number} ({line.split()[0].partition('=')[0]})" for number, line in lines.items()
        ]
        ledger.add_check(
            f"lines beside the launcher's are dropped: {', '.join(named)}. If the ranks need it, "
            "do it in the image or with staging.command, set variables in worker.env, and in "
            "place of cd set master.container.workingDir"
        )


def _carry_over(ledger: Ledger, path: KeyPath, text: str, header: LineSize) -> None:
    """Convert the launcher's line to the chart's values."""
    # Recorded first: the next steps add an entry for each of its parts.
    ledger.change(path, ("master", "args"), "each part has a line of its own")
    try:
        line = parse_line(split_line(text, header.slurm_variables))
        if line.launcher == SRUN:
            header = header.replace_with(line.size)
            line.size = LineSize()
        line_size = line.size
        line.size = line_size.fill_from_slurm(header)
        number, slots, check = workers_and_slots(line.size)
    except NotUnderstoodError as error:
        raise ledger.error(path, str(error), error.expected or _EXPECTED_LINE) from None
    if line.size.per_host != line_size.per_host:
        line.checks.append(
            f"nodes and tasks of Slurm give a worker {pluralize(line.size.per_host or 1, 'slot')} "
            f"of the {pluralize(line.size.ranks or 1, 'rank')}: correct worker.number and "
            "worker.slots if not so"
        )
    carry_over_line(ledger, path, line)
    shown = f"{pluralize(number, 'worker')} of {pluralize(slots, 'slot')}"
    ledger.add_part(path, "the number of ranks", "worker.number and worker.slots", shown)
    carry_over_size(ledger, path, line, number, slots, path)
    if environment := list_exports(ledger, path, line, {}):
        ledger.put(("worker", "env"), list(environment.values()), path)
    for text in (
        check,
        "the line does not say what a worker needs: set worker.resources (GPUs, CPUs, memory)",
        "the line names no image: set image.repository and image.tag to one that has the program "
        "and its data",
        f"the program ran as its user, often root; {RUN_AS_ROOT}",
    ):
        if text:
            ledger.add_check(text)
