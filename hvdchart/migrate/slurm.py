"""Reads the `#SBATCH` header of a script: the nodes and tasks that it asks Slurm for. Pure.

As sbatch, it reads the lines above the first command only, and what follows # in such a line is a
comment.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvdchart.migrate.parser import NotUnderstoodError, Parser, count
from hvdchart.migrate.shell_words import read_statements

PREFIX = "#SBATCH"
# The options of sbatch and srun that take a value and say nothing of nodes and tasks.
WITH_VALUE: tuple[tuple[str, ...], ...] = (
    ("-A", "--account"),
    ("-a", "--array"),
    ("-b", "--begin"),
    ("-c", "--cpus-per-task"),
    ("-C", "--constraint"),
    ("-d", "--dependency"),
    ("-D", "--chdir"),
    ("-e", "--error"),
    ("-G", "--gpus"),
    ("-i", "--input"),
    ("-J", "--job-name"),
    ("-L", "--licenses"),
    ("-m", "--distribution"),
    ("-o", "--output"),
    ("-p", "--partition"),
    ("-q", "--qos"),
    ("-t", "--time"),
    ("-w", "--nodelist"),
    ("-x", "--exclude"),
    ("--comment",),
    ("--cpu-bind",),
    ("--cpus-per-gpu",),
    ("--export",),
    ("--gpu-bind",),
    ("--gpus-per-node",),
    ("--gpus-per-task",),
    ("--gres",),
    ("--mail-type",),
    ("--mail-user",),
    ("--mem",),
    ("--mem-bind",),
    ("--mem-per-cpu",),
    ("--mem-per-gpu",),
    ("--open-mode",),
    ("--reservation",),
    ("--signal",),
)
_TAKING_VALUE = frozenset(name for names in WITH_VALUE for name in names)


@dataclass(frozen=True)
class Size:
    """What Slurm is asked for, None for what a header does not say."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that Slurm sets from it."""
        tasks = self.tasks
        if tasks is None and self.tasks_per_node:
            tasks = (self.nodes or 1) * self.tasks_per_node
        given = {
            "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks,
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS_PER_NODE": self.tasks_per_node,
        }
        return {name: str(number) for name, number in given.items() if number}


def add_size_options(parser: argparse.ArgumentParser) -> None:
    """Add what sbatch and srun call nodes and tasks, and their options that say nothing of them."""
    parser.add_argument("-N", "--nodes", type=count)
    parser.add_argument("-n", "--ntasks", type=count)
    parser.add_argument("--ntasks-per-node", type=count)
    for names in WITH_VALUE:
        parser.add_argument(*names)


def header_lines(text: str) -> dict[int, str]:
    """The `#SBATCH` lines above the first command, by their numbers from 1 on."""
    lines = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            break
        if line.split()[:1] == [PREFIX]:
            lines[number] = line
    return lines


def read_line(line: str) -> Mapping[str, int]:
    """The `nodes`, `ntasks` and `ntasks_per_node` of a `#SBATCH` line.

    Raises NotUnderstoodError for a value that is no number, such as the range 2-4.
    """
    try:
        statements = read_statements(line.removeprefix(PREFIX))
    except ValueError as error:
        raise NotUnderstoodError(str(error)) from None
    words = [word.text for statement in statements for word in statement.words]
    parser = Parser(PREFIX)
    add_size_options(parser)
    given, _ = parser.parse_known_args(_bind_values(words))
    sizes = ("nodes", "ntasks", "ntasks_per_node")
    return {name: getattr(given, name) for name in sizes if getattr(given, name)}


def _bind_values(words: Sequence[str]) -> list[str]:
    """Each option and its value as one word, because a value may begin with a dash."""
    bound = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if rest and word in _TAKING_VALUE:
            word += ("=" if word.startswith("--") else "") + rest.pop(0)
        bound.append(word)
    return bound


def read_size(given: Mapping[str, int]) -> Size:
    """The size from the numbers of all lines."""
    return Size(given.get("nodes"), given.get("ntasks"), given.get("ntasks_per_node"))
