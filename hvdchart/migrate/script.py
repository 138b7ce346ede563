"""Converts a script: its `#SBATCH` header, and the line of one launcher. Nothing is run.

The script becomes a map of its lines, so that each line has its entry in the ledger. Lines beside
the launcher's are dropped, and what to do instead is to be checked. Where a line decides how the
launcher runs, as a loop or a condition does, the script is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate import slurm
from hvdchart.migrate.carry_over import carry_over_line, check_size, exported
from hvdchart.migrate.command_line import CommandLine, workers_and_slots
from hvdchart.migrate.launch_lines import STARTERS, parse_launch
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.parser import NotUnderstoodError
from hvdchart.migrate.pod_spec import RUN_AS_ROOT
from hvdchart.migrate.shell_words import ASSIGNMENT, Statement, read_statements
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, Place, shorten

EXPECTED = f"one line that begins with {', '.join(STARTERS[:-1])} or {STARTERS[-1]}"
# Programs before a launcher that change nothing which a pod keeps.
_WRAPPERS = frozenset(("time", "nohup", "exec"))
_NO_EFFECT = frozenset(
    ("set", "echo", "true", ":", "date", "hostname", "sleep", "wait", "printf", "tee")
)
# Launchers that are not read, and what to write instead.
_OTHER_LAUNCHERS = dict.fromkeys(
    ("jsrun", "aprun", "ibrun", "mpirun_rsh", "ddlrun", "prun"),
    "a line of mpirun with -np and -npernode",
)
# Programs that start a launcher, and what to write instead.
_AROUND = {
    **dict.fromkeys(
        ("docker", "podman", "nvidia-docker", "singularity", "apptainer"),
        "the launcher's line alone; set image.repository, image.tag, volumes and worker.env",
    ),
    **dict.fromkeys(
        ("sh", "bash", "dash", "eval", "numactl", "taskset", "env", "sudo", "command"),
        "the launcher's line alone; set variables in worker.env",
    ),
}
# What to do instead of a line that is dropped, by its program.
_TO_DO = {
    **dict.fromkeys(
        ("source", "."), "if it sets variables, write them into worker.env, or into the line"
    ),
    **dict.fromkeys(("cd", "pushd"), "make paths in master.args absolute"),
}
_SETS = ("export", "declare", "typeset", "local", "readonly", "read", "let", "unset")
_SET_IT = "if the ranks need it, set it in worker.env; write its value where the line names it"
# The headers of other batch systems.
_OTHER_BATCH = {"#PBS": "PBS", "#BSUB": "LSF", "#COBALT": "Cobalt"}
_NAME = re.compile(r"[A-Za-z_]\w*")
# No YAML has such a line that is not indented.
_LAUNCH = re.compile(
    rf"^(?:(?:{'|'.join(_WRAPPERS)})\s+)*+(?:/\S*/)?(?:{'|'.join(map(re.escape, STARTERS))})\s",
    re.M,
)


def is_script(data: bytes) -> bool:
    """Whether a file is a script, by its header, the line of a launcher, or its first command."""
    text = data[:MAX_BYTES].decode(errors="replace")
    if text.startswith("#!") or slurm.header_lines(text) or _LAUNCH.search(text):
        return True
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    words = next((words for words in lines if words), [])
    known = (*STARTERS, *_OTHER_LAUNCHERS, *_AROUND, *_WRAPPERS, *_SETS, *_TO_DO, "module")
    if not words:
        return False
    return PurePosixPath(words[0]).name in known or bool(ASSIGNMENT.match(words[0]))


def migrate_script(data: bytes, file: str, schema: Mapping[str, Any]) -> Ledger:
    """Migrate a script; `schema` is that of the chart's values. Raises SpecError."""
    text = _read_text(data, file)
    header, size = _read_header(text, file)
    try:
        statements = read_statements(text, size.variables)
    except ValueError as error:
        raise SpecError(file, "", str(error), "a complete shell script") from None
    ledger, named = _make_ledger(text, file, statements, schema)
    _drop_header(ledger, header)
    launch: tuple[KeyPath, Statement] | None = None
    for path, statement in named:
        if _starts_training(ledger, path, statement):
            if launch:
                problem = f"a second line that starts a training, after {launch[0][0]}"
                raise ledger.error(path, problem, "one such line")
            launch = (path, statement)
        else:
            _drop_line(ledger, path, statement)
    if launch is None:
        first = next((shorten(statement.raw) for statement in statements), "nothing")
        problem = f"no line starts a training; the file begins with {first}"
        raise SpecError(file, "", problem, EXPECTED)
    _carry_over(ledger, *launch, size)
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


def _read_header(text: str, file: str) -> tuple[dict[int, str], slurm.Size]:
    """The `#SBATCH` lines above the first command, and the size that they ask for."""
    for number, line in enumerate(text.split("\n"), 1):
        if system := _OTHER_BATCH.get("".join(line.split()[:1])):
            expected = (
                "lines of #SBATCH in place of it, or -np and -npernode on the launcher's line"
            )
            problem = f"a line for {system}, which migrate does not read"
            raise SpecError(str(Place(file, number, 1)), f"line {number}", problem, expected)
    header = slurm.header_lines(text)
    given: dict[str, int] = {}
    for number, line in header.items():
        try:
            given.update(slurm.read_line(line))
        except NotUnderstoodError as error:
            place = str(Place(file, number, 1))
            expected = "one number of nodes, tasks and tasks per node"
            raise SpecError(place, f"line {number}", str(error), expected) from None
    return header, slurm.read_size(given)


def _make_ledger(
    text: str, file: str, statements: list[Statement], schema: Mapping[str, Any]
) -> tuple[Ledger, list[tuple[KeyPath, Statement]]]:
    """The ledger with a value for each statement and each line of #SBATCH, and their paths."""
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
    """Whether the statement is the line of a launcher. Raises SpecError for one that it hides."""
    if statement.compound:
        problem = f"{statement.compound} begins more than a simple command"
        raise ledger.error(path, problem, f"a script without it, with {EXPECTED}")
    while statement.words and statement.words[0].text in _WRAPPERS:
        statement.words.pop(0)
        wrapper = statement.written.pop(0)
        ledger.add_part(path, wrapper, "", "the master starts the launcher itself")
    if not statement.words:
        return False
    first, *rest = statement.words
    program = PurePosixPath(first.text).name
    if program in STARTERS:
        return True
    if program in _OTHER_LAUNCHERS:
        problem = f"migrate does not read a line of {program}"
        raise ledger.error(path, problem, _OTHER_LAUNCHERS[program])
    is_assignment = bool(ASSIGNMENT.match(statement.written[0]))
    inner = [PurePosixPath(part).name for word in rest for part in word.text.split()]
    launcher = next((name for name in inner if name in STARTERS), "")
    if launcher and (is_assignment or program in _AROUND):
        before = "a variable" if is_assignment else program
        expected = _AROUND.get(program, _AROUND["env"])
        raise ledger.error(path, f"{before} comes before {launcher}", expected)
    return False


def _drop_line(ledger: Ledger, path: KeyPath, statement: Statement) -> None:
    """Drop a line that starts no training; what to do instead is to be checked."""
    names = [match[0] for text in statement.written if (match := _NAME.match(text))]
    program = PurePosixPath(statement.words[0].text).name if statement.words else ""
    if not program or program in _NO_EFFECT or re.fullmatch(r"[-#!=.*]*", program):
        ledger.drop(path, "it changes nothing that the run keeps")
        return
    ledger.drop(path, "the chart runs the launcher alone")
    # A value may be a secret.
    if ASSIGNMENT.match(statement.written[0]):
        ledger.add_check(f"{path[0]} is dropped ({names[0]}=...): {_SET_IT}")
    elif program in _SETS:
        ledger.add_check(f"{path[0]} is dropped ({' '.join(names)}): {_SET_IT}")
    else:
        what = _TO_DO.get(program, "do it in the image, or with staging.command")
        ledger.add_check(f"{path[0]} is dropped ({shorten(statement.raw)}): {what}")


def _carry_over(ledger: Ledger, path: KeyPath, statement: Statement, size: slurm.Size) -> None:
    """The launcher's line -> the chart's values."""
    # Recorded first: what follows adds an entry for each of its parts.
    ledger.change(path, ("master", "args"), "each part has a line of its own")
    for redirect in statement.redirects:
        reason = "kubectl logs shows what the ranks print"
        if redirect.lstrip("0123456789").startswith("<"):
            reason = "ranks have no standard input"
            ledger.add_check(f"the program read {redirect}: let it open the file itself")
        ledger.add_part(path, redirect, "", reason)
    try:
        line = parse_launch(statement.words, size)
    except NotUnderstoodError as error:
        unknown = next((word.unknown for word in statement.words if word.unknown), "")
        problem = f"only a shell knows {unknown}" if unknown else str(error)
        raise ledger.error(
            path, problem, "its value in its place" if unknown else EXPECTED
        ) from None
    carry_over_line(ledger, path, line)
    _take_slurm_size(ledger, path, line, size)
    try:
        number, slots, check = workers_and_slots(line)
    except ValueError as error:
        raise ledger.error(path, *error.args) from None
    if check:
        ledger.add_check(check)
    ledger.put(("worker", "number"), number, path)
    ledger.put(("worker", "slots"), slots, path)
    shown = f"{pluralize(number, 'worker')} of {pluralize(slots, 'slot')}"
    ledger.add_part(path, "the number of ranks", "worker.number and worker.slots", shown)
    check_size(ledger, line, number, slots, path)
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


def _take_slurm_size(ledger: Ledger, path: KeyPath, line: CommandLine, size: slurm.Size) -> None:
    """Nodes and tasks of the lines for Slurm, whose launchers fill one node after the other."""
    nodes = size.nodes
    tasks = size.tasks
    each = size.tasks_per_node
    if line.hosts or line.host_file or not (nodes or tasks or (each and line.ranks)):
        return
    if line.per_host is not None:
        line.ranks = line.ranks or (nodes and nodes * line.per_host) or tasks
        return
    ranks = line.ranks = line.ranks or tasks or (nodes or 1) * (each or 1)
    if nodes and (tasks or not each):
        # Slurm takes --ntasks-per-node for the maximum beside --ntasks.
        each = (tasks or ranks) // nodes
    per_host = ranks if each is None else min(ranks, each)
    if not per_host or ranks % per_host or ranks > (nodes or ranks) * per_host:
        where = f"the {nodes} nodes" if nodes else f"nodes of {each} tasks"
        problem = f"{ranks} ranks on {where} of #SBATCH"
        raise ledger.error(path, problem, "as many ranks on each node")
    if nodes or each:
        line.per_host = per_host
        ledger.add_check(
            f"the lines of #SBATCH give a worker {pluralize(per_host, 'slot')} of the "
            f"{pluralize(ranks, 'rank')}: correct worker.number and worker.slots if not so"
        )
