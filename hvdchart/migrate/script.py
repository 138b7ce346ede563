"""Convert a script: its `#SBATCH` header, and the line of one launcher. Nothing is run.

The script becomes a map of its lines, so that each line has its entry in the ledger. Lines beside
the launcher's are dropped, and a check says what to do instead. A script in which a line controls
how the launcher runs, such as a loop or a condition, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate import slurm
from hvdchart.migrate.carry_over import carry_over_line, check_size, exported
from hvdchart.migrate.launch_lines import STARTERS, parse_launch
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.line_size import NotUnderstoodError, workers_and_slots
from hvdchart.migrate.pod_spec import RUN_AS_ROOT
from hvdchart.migrate.shell_words import ASSIGNMENT, Statement, read_statements
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, Place, shorten

EXPECTED = f"one line that begins with {', '.join(STARTERS[:-1])} or {STARTERS[-1]}"
# Programs that change nothing that a pod keeps.
_NO_EFFECT = frozenset(
    ("set", "echo", "true", ":", "date", "hostname", "sleep", "wait", "printf", "tee")
)
# YAML has no such unindented line.
_LAUNCH = re.compile(rf"^(?:/\S*/)?(?:{'|'.join(map(re.escape, STARTERS))})\s", re.M)


def is_script(data: bytes) -> bool:
    """Return whether a file is a script, by its header or by the line of a launcher."""
    text = data[:MAX_BYTES].decode(errors="replace")
    return text.startswith("#!") or bool(slurm.header_lines(text) or _LAUNCH.search(text))


def migrate_script(data: bytes, file: str, schema: Mapping[str, Any]) -> Ledger:
    """Migrate a script; `schema` is that of the chart's values. Raises SpecError."""
    text = _read_text(data, file)
    header = slurm.header_lines(text)
    size = _read_size(header, file)
    try:
        statements = read_statements(text, size.variables)
    except ValueError as error:
        raise SpecError(file, "", str(error), "a complete shell script") from None
    ledger, named = _make_ledger(text, file, statements, schema)
    _drop_header(ledger, header)
    launches = [each for each in named if _starts_training(ledger, *each)]
    _drop_lines(ledger, [each for each in named if each not in launches])
    if len(launches) > 1:
        problem = f"a second line that starts a training, after {launches[0][0][0]}"
        raise ledger.error(launches[1][0], problem, "one such line")
    if not launches:
        first = next((shorten(statement.raw) for statement in statements), "nothing")
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


def _make_ledger(
    text: str, file: str, statements: list[Statement], schema: Mapping[str, Any]
) -> tuple[Ledger, list[tuple[KeyPath, Statement]]]:
    """Return the ledger with a value for each statement and each #SBATCH line, and their paths."""
    nodes: dict[str, Node] = {}
    named: list[tuple[KeyPath, Statement]] = []
    for statement in statements:
        name = f"line {statement.line}"
        part = 1
        while name in nodes:
            part += 1
            name = f"line {statement.line}, part {part}"
        nodes[name] = Node(Place(file, statement.line, 1), statement.raw, statement.raw)
        named.append(((name,), statement))
    for number, line in enumerate(text.split("\n"), 1):
        if line.split()[:1] == [slurm.PREFIX]:
            nodes[f"line {number}"] = Node(Place(file, number, 1), line, line)
    return Ledger(Node(Place(file), nodes), schema), named


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


def _starts_training(ledger: Ledger, path: KeyPath, statement: Statement) -> bool:
    """Return whether the statement is a launcher's line.

    Raises SpecError for a loop and the like.
    """
    if statement.compound:
        problem = f"{statement.compound} begins more than a simple command"
        raise ledger.error(path, problem, f"a script without it, with {EXPECTED}")
    return bool(statement.words) and PurePosixPath(statement.words[0].text).name in STARTERS


def _drop_lines(ledger: Ledger, lines: Sequence[tuple[KeyPath, Statement]]) -> None:
    """Drop lines that start no training; add a check that names what the ranks may need."""
    named = []
    for path, statement in lines:
        program = PurePosixPath(statement.words[0].text).name if statement.words else ""
        if not program or program in _NO_EFFECT or re.fullmatch(r"[-#!=.*]*", program):
            ledger.drop(path, "it changes nothing that the run keeps")
        else:
            ledger.drop(path, "the chart runs the launcher alone")
            named.append(f"{path[0]} ({shorten(' '.join(map(_hide_value, statement.written)))})")
    if named:
        ledger.add_check(
            f"lines beside the launcher's are dropped: {', '.join(named)}. If the ranks need it, "
            "do it in the image or with staging.command, set variables in worker.env, and in "
            "place of cd set master.container.workingDir"
        )


def _hide_value(word: str) -> str:
    """Return a word without the value of a variable: it may be a secret."""
    match = ASSIGNMENT.match(word)
    return f"{match[0]}..." if match else word


def _carry_over(ledger: Ledger, path: KeyPath, statement: Statement, size: slurm.SlurmSize) -> None:
    """Convert the launcher's line to the chart's values."""
    # Recorded first: the next steps add an entry for each of its parts.
    ledger.change(path, ("master", "args"), "each part has a line of its own")
    for redirect in statement.redirects:
        reason = "kubectl logs shows what the ranks print"
        if redirect.lstrip("0123456789").startswith("<"):
            reason = "ranks have no standard input"
            ledger.add_check(f"the program read {redirect}: let it open the file itself")
        ledger.add_part(path, redirect, "", reason)
    try:
        line = parse_launch(statement.words, size)
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
