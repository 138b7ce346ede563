"""Convert a script: its `#SBATCH` header, and the line of one launcher. Nothing is run.

The script becomes a map of its lines, so that each line has its entry in the ledger. Lines beside
the launcher's are dropped, and a check says what to do instead. A script in which a line controls
how the launcher runs, such as a loop or a condition, is refused, and so is a launcher's line that
needs a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate import slurm
from hvdchart.migrate.carry_over import carry_over_line, check_size, exported
from hvdchart.migrate.command_line import split_line
from hvdchart.migrate.launch_lines import STARTERS, parse_launch
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line_size import NotUnderstoodError, workers_and_slots
from hvdchart.migrate.pod_spec import RUN_AS_ROOT
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, Place, shorten

EXPECTED = f"one line that begins with {', '.join(STARTERS[:-1])} or {STARTERS[-1]}"
# Programs that change nothing that a pod keeps.
_NO_EFFECT = frozenset(("set", "echo", "true", ":", "date", "hostname", "sleep", "wait", "printf"))
_LAUNCHER = rf"(?:/[^\s;&|(!]*/)?(?:{'|'.join(map(re.escape, STARTERS))})(?!\S)"
# YAML has no such unindented line.
_LAUNCH = re.compile(rf"^{_LAUNCHER}", re.M)
# What begins a command of several lines or parts.
_COMPOUND = re.compile(
    r"(?:if|for|while|until|case|select|function|coproc|!|\{|\[\[)(?!\S)|\(|\w+\s*\(\)"
)
_HERE_DOCUMENT = re.compile(r"<<")
_LATER_LAUNCH = re.compile(rf"[;&|(!]\s*{_LAUNCHER}")
_OPERATOR = re.compile(r"[;&|]")
_SECRET = re.compile(r"(?<![\w-])([A-Za-z_]\w*\+?=).*", re.S)


def is_script(data: bytes) -> bool:
    """Return whether a file is a script, by its header or by the line of a launcher."""
    text = data[:MAX_BYTES].decode(errors="replace")
    return text.startswith("#!") or bool(slurm.header_lines(text) or _LAUNCH.search(text))


def migrate_script(data: bytes, file: str, schema: Mapping[str, Any]) -> Ledger:
    """Migrate a script; `schema` is that of the chart's values. Raises SpecError."""
    text = _read_text(data, file)
    header = slurm.header_lines(text)
    size = _read_size(header, file)
    lines = _read_lines(text)
    ledger = _make_ledger(text, file, lines, schema)
    _drop_header(ledger, header)
    named = [((f"line {number}",), line) for number, line in lines.items()]
    launches = [(path, line) for path, line in named if _LAUNCH.match(line)]
    _drop_lines(ledger, [each for each in named if each not in launches])
    if len(launches) > 1:
        problem = f"a second line that starts a training, after {launches[0][0][0]}"
        raise ledger.error(launches[1][0], problem, "one such line")
    if not launches:
        first = next(map(shorten, lines.values()), "nothing")
        problem = f"no line begins with a launcher; the file begins with {first}"
        raise SpecError(file, "", problem, EXPECTED)
    _carry_over(ledger, *launches[0], size)
    ledger.close()
    return ledger


def _read_text(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise SpecError(file, "", "the file is too long", f"at most {MAX_BYTES} bytes")
    try:
        text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SpecError(file, "", "the file is not UTF-8", "text") from None
    if any(not char.isprintable() and char not in "\n\t" for char in text):
        raise SpecError(file, "", "the file has control characters", "text")
    return text


def _read_size(header: Mapping[int, str], file: str) -> slurm.SlurmSize:
    """Return the size that the lines of a header request."""
    size = slurm.SlurmSize()
    for number, line in header.items():
        try:
            size = slurm.read_line(line, size)
        except NotUnderstoodError as error:
            place = str(Place(file, number, 1))
            expected = "one number of nodes, tasks and tasks per node"
            raise SpecError(place, f"line {number}", str(error), expected) from None
    return size


def _read_lines(text: str) -> dict[int, str]:
    """Return the lines with commands by number, each with the lines in which it goes on."""
    lines: dict[int, str] = {}
    first = 0
    for number, line in enumerate(text.split("\n"), 1):
        if first:
            lines[first] += line
        elif not line.strip() or line.lstrip().startswith("#"):
            continue
        else:
            first = number
            lines[first] = line.lstrip()
        if lines[first].endswith("\\"):
            lines[first] = lines[first][:-1]
        else:
            first = 0
    return lines


def _make_ledger(
    text: str, file: str, lines: Mapping[int, str], schema: Mapping[str, Any]
) -> Ledger:
    """Return the ledger with a value for each command and each #SBATCH line."""
    header = {
        number: line
        for number, line in enumerate(text.split("\n"), 1)
        if line.split()[:1] == [slurm.PREFIX]
    }
    nodes = {
        f"line {number}": Node(Place(file, number, 1), line, line)
        for number, line in sorted((header | dict(lines)).items())
    }
    return Ledger(Node(Place(file), nodes), schema)


def _drop_header(ledger: Ledger, header: Mapping[int, str]) -> None:
    for name, line in ledger.map_at().items():
        if not str(line).startswith(slurm.PREFIX):
            continue
        number = int(name.removeprefix("line "))
        reason = "a line for Slurm" if number in header else "Slurm reads no line after a command"
        ledger.drop((name,), reason)
    if header:
        words = [line.removeprefix(slurm.PREFIX).strip() for line in header.values()]
        ledger.add_check(
            f"the lines for Slurm are dropped ({', '.join(words)}): worker.number, worker.slots "
            "and worker.resources say what a run gets"
        )


def _drop_lines(ledger: Ledger, lines: Sequence[tuple[KeyPath, str]]) -> None:
    """Drop lines that start no training; add a check that names what the ranks may need.

    Raises SpecError for a loop and the like.
    """
    named = []
    for path, line in lines:
        words = _split_other(ledger, path, line)
        if not words or (words[0] in _NO_EFFECT and not _OPERATOR.search(line)):
            ledger.drop(path, "it changes nothing that the run keeps")
        else:
            ledger.drop(path, "the chart runs the launcher alone")
            # The value of a variable may be a secret.
            shown = " ".join(_SECRET.sub(r"\1...", word) for word in words)
            named.append(f"{path[0]} ({shorten(shown)})")
    if named:
        ledger.add_check(
            f"lines beside the launcher's are dropped: {', '.join(named)}. If the ranks need it, "
            "do it in the image or with staging.command, set variables in worker.env, and in "
            "place of cd set master.container.workingDir"
        )


def _split_other(ledger: Ledger, path: KeyPath, line: str) -> list[str]:
    """Return the words of a line that is not the launcher's. Raises SpecError for a loop and the
    like.
    """
    problem = ""
    if found := _COMPOUND.match(line) or _HERE_DOCUMENT.search(line):
        problem = f"{found[0]} begins more than a simple command"
    elif found := _LATER_LAUNCH.search(line):
        problem = f"a launcher follows another command: {shorten(line)}"
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        problem = problem or "a quote is not closed in this line"
    if problem:
        raise ledger.error(path, problem, f"a script without it, with {EXPECTED}")
    return words


def _carry_over(ledger: Ledger, path: KeyPath, text: str, size: slurm.SlurmSize) -> None:
    """Convert the launcher's line to the chart's values."""
    # Recorded first: the next steps add an entry for each of its parts.
    ledger.change(path, ("master", "args"), "each part has a line of its own")
    try:
        line = parse_launch(split_line(text, size.variables), size)
        by_node = any(option in ("node", "--bynode", "-bynode") for option in line.options)
        number, slots, check = workers_and_slots(line.size, by_node=by_node)
    except NotUnderstoodError as error:
        raise ledger.error(path, str(error), error.expected or EXPECTED) from None
    carry_over_line(ledger, path, line)
    if check:
        ledger.add_check(check)
    ledger.put(("worker", "number"), number, path)
    ledger.put(("worker", "slots"), slots, path)
    shown = f"{pluralize(number, 'worker')} of {pluralize(slots, 'slot')}"
    ledger.add_part(path, "the number of ranks", "worker.number and worker.slots", shown)
    check_size(ledger, path, line, number, slots, path)
    environment = exported(ledger, path, line, {})
    if environment:
        ledger.put(("worker", "env"), list(environment.values()), path)
    ledger.add_check(
        "the line does not say what a worker needs: set worker.resources (GPUs, CPUs, memory)"
    )
    ledger.add_check(
        "the line names no image: set image.repository and image.tag to one that has the program "
        "and its data"
    )
    ledger.add_check(f"the program ran as its user, often root; {RUN_AS_ROOT}")
