"""Read how many nodes and tasks a script requests from Slurm. Pure.

Like sbatch, read only the `#SBATCH` lines above the first command; text after # in such a line is a
comment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count
from hvdchart.quantity import pluralize

PREFIX = "#SBATCH"
_NODES = ("-N", "--nodes")
_TASKS = ("-n", "--ntasks")
_TASKS_PER_NODE = ("--ntasks-per-node",)


@dataclass(frozen=True)
class SlurmSize:
    """The resources requested from Slurm; None for what a script does not give."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that Slurm sets for this size."""
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

    def take(self, words: Sequence[str]) -> tuple[SlurmSize, int]:
        """Return the size with the first option, and the number of words of that option.

        That number is 0 for an option that does not set nodes or tasks. Raises NotUnderstoodError
        for a value that is no number, such as the range 2-4.
        """
        is_long = words[0].startswith("--")
        name, _, value = words[0].partition("=") if is_long else (words[0][:2], "", words[0][2:])
        if name not in (*_NODES, *_TASKS, *_TASKS_PER_NODE):
            return self, 0
        width = 1 if value else 2
        number = read_count(name, value or "".join(words[1:2]))
        if name in _NODES:
            return replace(self, nodes=number), width
        if name in _TASKS:
            return replace(self, tasks=number), width
        return replace(self, tasks_per_node=number), width

    def fill(self, size: LineSize) -> LineSize:
        """Return the size of a launcher's line; fill missing values from Slurm's size.

        Launchers fill one node after the other. Raises NotUnderstoodError.
        """
        each = self.tasks_per_node
        if size.hosts or size.host_file or not (self.nodes or self.tasks or (each and size.ranks)):
            return size
        if size.per_host is not None:
            of_nodes = self.nodes and self.nodes * size.per_host
            return replace(size, ranks=size.ranks or of_nodes or self.tasks)
        ranks = size.ranks or self.tasks or (self.nodes or 1) * (each or 1)
        if self.nodes and (self.tasks or not each):
            # With --ntasks, Slurm uses --ntasks-per-node as the maximum.
            each = (self.tasks or ranks) // self.nodes
        per_host = ranks if each is None else min(ranks, each)
        if not per_host or ranks % per_host or ranks > (self.nodes or ranks) * per_host:
            where = f"the {self.nodes} nodes" if self.nodes else f"nodes of {each} tasks"
            problem = f"{ranks} ranks on {where} of Slurm"
            raise NotUnderstoodError(problem, "as many ranks on each node")
        return replace(size, ranks=ranks, per_host=per_host if self.nodes or each else None)


def explain_size(size: LineSize) -> str:
    """Return a check about the ranks on each node that Slurm assigns to a line."""
    return (
        f"nodes and tasks of Slurm give a worker {pluralize(size.per_host or 1, 'slot')} of the "
        f"{pluralize(size.ranks or 1, 'rank')}: correct worker.number and worker.slots if not so"
    )


def header_lines(text: str) -> dict[int, str]:
    """Return the `#SBATCH` lines above the first command, by their numbers from 1 on."""
    lines = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            break
        if line.split()[:1] == [PREFIX]:
            lines[number] = line
    return lines


def read_line(line: str, size: SlurmSize) -> SlurmSize:
    """Return the size changed by a `#SBATCH` line. Raises NotUnderstoodError."""
    options = re.split(r"\s#", line.removeprefix(PREFIX), maxsplit=1)[0]
    try:
        # A word with a space is the value of another option.
        words = [word for word in shlex.split(options) if " " not in word]
    except ValueError:
        raise NotUnderstoodError("a quote is not closed") from None
    while words:
        size, width = size.take(words)
        words = words[width or 1 :]
    return size
