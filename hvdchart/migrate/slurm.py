"""Read the nodes and tasks that the `#SBATCH` lines of a script request. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Any

from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count

SBATCH = "#SBATCH"
# The fields of LineSize that options set.
_FIELDS = {
    "-N": "nodes",
    "--nodes": "nodes",
    "-n": "ranks",
    "--ntasks": "ranks",
    "--ntasks-per-node": "per_host",
}


def header_lines(text: str) -> dict[int, str]:
    """Return the `#SBATCH` lines above the first command, by their numbers from 1 on."""
    above = takewhile(lambda line: line.lstrip()[:1] in ("", "#"), text.split("\n"))
    return sbatch_lines(above)


def sbatch_lines(lines: Iterable[str]) -> dict[int, str]:
    """Return the `#SBATCH` lines by their numbers from 1 on."""
    numbered = enumerate(lines, 1)
    return {number: line for number, line in numbered if line.startswith(SBATCH)}


def read_sbatch_line(line: str, size: LineSize) -> LineSize:
    """Return the size changed by the options in a line, the last of which wins, as for Slurm.

    Raises NotUnderstoodError for a value that is missing or no number, such as the range 2-4.
    """
    # Text after # in such a line is a comment.
    options = re.split(r"\s#", line.removeprefix(SBATCH), maxsplit=1)[0]
    try:
        words = iter(shlex.split(options))
    except ValueError as error:
        raise NotUnderstoodError(str(error)) from None
    for word in words:
        # Only letters have one dash: Slurm reads -nodes=2 as -n odes=2.
        name, has_value, value = word.partition("=")
        if not word.startswith("--"):
            name = word[:2]
            value = has_value = word[2:]
        # A word with a space is the value of another option.
        if name not in _FIELDS or " " in word:
            continue
        if not has_value:
            value = next(words, "")
        if not value:
            raise NotUnderstoodError(f"{name} has no value")
        changes: dict[str, Any] = {_FIELDS[name]: read_count(name, value)}
        size = replace(size, **changes)
    return size
