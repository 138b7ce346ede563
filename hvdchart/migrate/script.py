"""Converts a typed command line, or a shell script with one.

The line starts mpirun, horovodrun, docker run or mlt. Nothing is run. The script becomes a map of
its lines, so that each line has its entry in the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate import shell
from hvdchart.migrate.command_line import (
    LAUNCHERS,
    CommandLine,
    parse_command_line,
    workers_and_slots,
)
from hvdchart.migrate.docker import PROGRAMS, DockerRun
from hvdchart.migrate.launch import Variable, carry_over_line, check_size, exported
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.mlt import Mlt
from hvdchart.migrate.pod_spec import RUN_AS_ROOT
from hvdchart.quantity import pluralize
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, Place, shorten

EXPECTED = "one line with mpirun, mpiexec, horovodrun, docker run or mlt"
# Programs before a launcher that change nothing which a pod keeps.
_WRAPPERS = frozenset(("time", "nohup", "exec", "command", "sudo", "env"))
_NO_EFFECT = frozenset(
    ("set", "echo", "true", ":", "date", "hostname", "sleep", "wait", "printf", "tee")
)
_OTHER_LAUNCHERS = frozenset(
    (
        "srun",
        "jsrun",
        "aprun",
        "torchrun",
        "deepspeed",
        "mpirun_rsh",
        "ddlrun",
        "ibrun",
        "prun",
        "numactl",
        "taskset",
    )
)
# Builtins after which only a shell knows the variables that they name.
_SETS = ("declare", "typeset", "local", "readonly", "read", "let", "unset", "mapfile", "readarray")
# What to do instead of a line that is dropped, by its program.
_TO_DO = {
    **dict.fromkeys(_SETS, "write NAME=VALUE or export NAME=VALUE, and migrate it again"),
    **dict.fromkeys(
        ("source", ".", "eval"),
        "if it sets variables, write them into the script, and migrate it again",
    ),
    **dict.fromkeys(("cd", "pushd"), "make paths in master.args absolute"),
}
# Commands before && that no script expects to fail.
_SUCCEEDS = frozenset(("cd", "pushd", "mkdir", "export", "set", "echo", "true", ":", "module"))
_STARTS_TRAINING = re.compile(rf"\b({'|'.join(map(re.escape, LAUNCHERS))}|docker run)\b")
# A line for Slurm, PBS, LSF or Grid Engine, and what Slurm's say of nodes and tasks.
_BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|\$)[ \t]+(.*)$", re.MULTILINE)
_SLURM = re.compile(r"(?:--(nodes|ntasks|ntasks-per-node)[= ]|-([Nn]) ?)([0-9]{1,7})(?=\s|$)")
_SHORT = {"N": "nodes", "n": "ntasks"}
_SLURM_VARIABLES = {
    "SLURM_NTASKS": "ntasks",
    "SLURM_NPROCS": "ntasks",
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
}
# Variables that a launcher reads itself.
_LAUNCHERS_OWN = ("OMPI_", "PRTE_", "PMIX_", "I_MPI_", "HYDRA_", "MPIR_")


def _read_text(data: bytes, file: str) -> tuple[str, list[shell.Statement]]:
    """The text of a script and its statements. Raises SpecError."""
    if len(data) > MAX_BYTES:
        raise SpecError(file, "", "the file is too long", f"at most {MAX_BYTES} bytes")
    try:
        text = data.decode()
        statements = shell.read_statements(text)
    except UnicodeDecodeError:
        raise SpecError(file, "", "the file is not UTF-8", "text") from None
    except ValueError as error:
        raise SpecError(file, "", str(error), "a complete shell script") from None
    if any(not char.isprintable() and char not in "\n\t\r" for char in text):
        raise SpecError(file, "", "the file has control characters", "text")
    return text, statements


class Script:
    """The statements of a script, one after the other, and its lines for a batch system."""

    def __init__(self, data: bytes, file: str, schema: Mapping[str, Any]) -> None:
        text, statements = _read_text(data, file)
        nodes: dict[str, Node] = {}
        self.statements: list[tuple[KeyPath, shell.Statement]] = []
        for statement in statements:
            name = f"line {statement.line}"
            part = 1
            while name in nodes:
                part += 1
                name = f"line {statement.line}, part {part}"
            nodes[name] = Node(Place(file, statement.line, 1), statement.raw, statement.raw)
            self.statements.append(((name,), statement))
        batch: dict[str, str] = {}
        for match in _BATCH.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            nodes[f"line {line}"] = Node(Place(file, line, 1), match[0], match[0])
            batch[f"line {line}"] = match[1].strip()
        self.ledger = ledger = Ledger(Node(Place(file), nodes), schema)
        for name in batch:
            ledger.drop((name,), "a line for a batch system")
        if batch:
            ledger.add_check(
                f"the lines for a batch system are dropped ({', '.join(batch.values())}): "
                "worker.number, worker.slots and worker.resources say what a run gets"
            )
        found = _SLURM.findall(" ".join(batch.values()))
        self.slurm = {long or _SHORT[short]: int(number) for long, short, number in found}
        self.variables: dict[str, str | None] = {
            variable: str(self.slurm[option])
            for variable, option in _SLURM_VARIABLES.items()
            if option in self.slurm
        }
        self.exported: set[str] = set()
        self.mlt = Mlt(ledger)
        self.launch: tuple[KeyPath, shell.Statement, list[shell.Text]] | None = None

    def migrate(self) -> None:
        before = shell.Statement(0)
        is_doubtful = False
        for path, statement in self.statements:
            # Whether it runs only if one before it, joined by && or ||, ends in some way.
            first = "".join(before.words[:1])
            succeeds = first in _SUCCEEDS or shell.ASSIGNMENT.match(first)
            is_doubtful = before.end in ("&&", "||") and (
                is_doubtful or before.end == "||" or not succeeds
            )
            before = statement
            known = dict(self.variables)
            given = set(self.exported)
            has_launched = self.launch is not None
            self._read(path, statement, is_doubtful)
            if has_launched:
                # The ranks have the variables of before.
                self.variables = known
                self.exported = given
        if self.mlt.used and self.launch:
            problem = "the script has both mlt and another launcher"
            raise self.ledger.error(self.launch[0], problem, EXPECTED)
        if self.mlt.used:
            self.mlt.carry_over()
        elif self.launch:
            self._carry_over(*self.launch)
        else:
            first = next((shorten(s.raw) for _, s in self.statements), "nothing")
            problem = f"no line starts a training; the file begins with {first}"
            raise SpecError(str(self.ledger.root.place), "", problem, EXPECTED)
        if "image" not in self.ledger.values:
            self.ledger.add_check(
                "the line names no image: set image.repository and image.tag to "
                "one that has the program and its data"
            )
        self.ledger.add_check(f"the program ran as its user, often root; {RUN_AS_ROOT}")
        self.ledger.close()

    def _read(self, path: KeyPath, statement: shell.Statement, is_doubtful: bool) -> None:
        ledger = self.ledger
        if statement.compound:
            problem = f"{statement.compound} begins more than a simple command"
            raise ledger.error(path, problem, "assignments and one launcher's line, without loops")
        words = list(statement.words)
        # Assignments before a program are for it alone: its words have the values of before.
        own: list[str] = []
        wrappers: list[str] = []
        while words and (
            shell.ASSIGNMENT.match(words[0])
            or PurePosixPath(words[0]).name in _WRAPPERS
            or (wrappers and words[0].startswith("-"))
        ):
            (own if shell.ASSIGNMENT.match(words[0]) else wrappers).append(words.pop(0))
        texts = shell.expand(words, self.variables)
        program = (PurePosixPath(texts[0].text).name or texts[0].text) if texts else ""
        if program == "export" or not words:
            names = shell.assign(own or words[1:], self.variables)
            if is_doubtful:
                self.variables.update(dict.fromkeys(names))
            reason = "its value is in the options and arguments that name it"
            if words:
                self.exported.update(names)
                reason = "a variable for the launcher, which has a line of its own"
            ledger.drop(path, reason)
        elif program == "mlt":
            self.mlt.read(path, texts[1:])
        elif program in _OTHER_LAUNCHERS:
            raise ledger.error(path, f"{program} is not a launcher that migrate knows", EXPECTED)
        elif (
            program in LAUNCHERS
            or (program in PROGRAMS and [text.text for text in texts[1:2]] == ["run"])
            or (
                program in ("sh", "bash", "dash")
                and any(_STARTS_TRAINING.search(text.text) for text in texts[1:])
            )
        ):
            if self.launch:
                problem = f"a second line that starts a training, after {self.launch[0][0]}"
                raise ledger.error(path, problem, "one such line")
            self.launch = (path, statement, texts)
            self.exported.update(shell.assign(own, self.variables))
            # Recorded first: what follows adds an entry for each of its parts.
            ledger.change(path, ("master", "args"), "each part has a line of its own")
            if wrappers:
                reason = "the master starts the launcher itself"
                ledger.add_part(path, " ".join(wrappers), "", reason)
        elif program in _NO_EFFECT or (program != "." and re.fullmatch(r"[-#!=.*]*", program)):
            ledger.drop(path, "it changes nothing that the run keeps")
        else:
            what = _TO_DO.get(program, "do it in the image, or with staging.command")
            shown = statement.raw
            if program in _SETS:
                found = [shell.NAME.match(word.lstrip("\"'")) for word in words[1:]]
                names = [match[0] for match in found if match]
                self.variables.update(dict.fromkeys(names))
                # A value may be a secret.
                shown = " ".join([program, *names])
            ledger.drop(path, "the chart runs the launcher alone")
            ledger.add_check(f"{path[0]} is dropped ({shorten(shown)}): {what}")

    def _carry_over(
        self, path: KeyPath, statement: shell.Statement, texts: list[shell.Text]
    ) -> None:
        ledger = self.ledger
        for redirect in statement.redirects:
            reason = "kubectl logs shows what the ranks print"
            if redirect.lstrip("0123456789").startswith("<"):
                reason = "ranks have no standard input"
                ledger.add_check(f"the program read {redirect}: let it open the file itself")
            ledger.add_part(path, redirect, "", reason)
        docker = None
        if PurePosixPath(texts[0].text).name in PROGRAMS:
            docker = DockerRun(ledger, path)
            texts = docker.read(texts[2:])
        for name, default in shell.defaults_in(statement.words, self.variables):
            ledger.add_check(f"nothing in the script sets {name}: its default {default} is used")
        line = parse_command_line(texts)
        if line.mode == "custom":
            unknown = next((text.unknown for text in texts if text.unknown), "")
            if not unknown:
                raise ledger.error(path, line.custom_reason, EXPECTED)
            named = re.match(r"\$\{?([A-Za-z_]\w*)", unknown)
            expected = f"{named[1]}=VALUE in a line above" if named else "its value in its place"
            raise ledger.error(path, f"only a shell knows {unknown}", expected)
        carry_over_line(ledger, path, line)
        self._take_slurm_size(path, line)
        try:
            number, slots, check = workers_and_slots(line)
        except ValueError as error:
            raise ledger.error(path, *error.args) from None
        if check:
            ledger.add_check(check)
        ledger.put(("worker", "number"), number, path)
        ledger.put(("worker", "slots"), slots, path)
        ledger.add_part(
            path,
            "the number of ranks",
            "worker.number and worker.slots",
            f"{pluralize(number, 'worker')} of {pluralize(slots, 'slot')}",
        )
        check_size(ledger, line, number, slots, path)
        if docker and docker.gpus:
            limits = {"nvidia.com/gpu": slots}
            ledger.put(("worker", "resources"), {"limits": limits}, path)
            if docker.gpus not in ("all", str(slots)):
                ledger.add_check(
                    f"the container had {docker.gpus} GPUs and {slots} ranks: "
                    "here each rank has one GPU"
                )
        else:
            ledger.add_check(
                "the line does not say what a worker needs: set worker.resources "
                "(GPUs, CPUs, memory)"
            )
        self._carry_over_environment(path, line, docker.environment if docker else {}, number)

    def _take_slurm_size(self, path: KeyPath, line: CommandLine) -> None:
        """Nodes and tasks of the lines for Slurm, whose launchers fill one node after the other."""
        nodes = self.slurm.get("nodes")
        tasks = self.slurm.get("ntasks")
        each = self.slurm.get("ntasks-per-node")
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
            raise self.ledger.error(path, problem, "as many ranks on each node")
        if nodes or each:
            line.per_host = per_host
            self.ledger.add_check(
                f"the lines of #SBATCH give a worker {pluralize(per_host, 'slot')} of the "
                f"{pluralize(ranks, 'rank')}: correct worker.number and worker.slots if not so"
            )

    def _carry_over_environment(
        self, path: KeyPath, line: CommandLine, given: Mapping[str, Variable], number: int
    ) -> None:
        """A container's variables for all ranks, the script's exported ones as the launcher did."""
        ledger = self.ledger
        own: dict[str, Variable] = {}
        for name in sorted(self.exported):
            value = self.variables.get(name)
            if value is not None:
                own[name] = {"name": name, "value": value}
            else:
                ledger.add_check(
                    f"only a shell knows the value of {name}: set it in worker.env if "
                    "the ranks need it"
                )
        won = exported(ledger, path, line, own, told=self.exported)
        for name in won:
            if name in given and given[name] != won[name]:
                reason = "the launcher sets it for all ranks, which wins as before"
                ledger.add_part(path, f"-e {name}=...", "", reason)
        environment = {**given, **won}
        rest = {name: entry for name, entry in own.items() if name not in environment}
        ours = {name: entry for name, entry in rest.items() if name.startswith(_LAUNCHERS_OWN)}
        others = {name: entry for name, entry in rest.items() if name not in ours}
        if number == 1:
            environment |= others
        elif others:
            ours |= others
            ledger.add_check(
                f"{', '.join(others)} went to the ranks of one host only, because no "
                "-x names it; here it is in master.env"
            )
        for key, entries in (("worker", environment), ("master", ours)):
            if entries:
                ledger.put((key, "env"), list(entries.values()), path)
