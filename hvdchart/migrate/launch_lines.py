"""Parse the lines of srun and torchrun, and of any launcher in a script or a container. Pure.

The ranks of these launchers connect by variables that the chart sets in each mode, so the master
can start them itself. Rarely used options are refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NoReturn

from hvdchart.migrate.command_line import (
    LAUNCHERS,
    WORKER_MINIMUM,
    CommandLine,
    LinePart,
    parse_line,
    refuse_expansion,
    unwrap_shell,
)
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count
from hvdchart.migrate.slurm import SlurmSize, explain_size

_RENDEZVOUS = "the chart sets where ranks meet"
_SIZE = "the chart takes it from worker.number and worker.slots"
# Options of torchrun that are dropped, and why; `--standalone` has no value.
_TORCHRUN = {
    **dict.fromkeys(
        (
            "--standalone",
            "--rdzv-backend",
            "--rdzv-endpoint",
            "--rdzv-id",
            "--rdzv-conf",
            "--node-rank",
            "--master-addr",
            "--master-port",
        ),
        _RENDEZVOUS,
    ),
    "--max-restarts": "master.backoffLimit sets the number of retries",
}
_TORCH_RUN = "torch.distributed.run"
_TORCH_LAUNCH = "torch.distributed.launch"
STARTERS = (*LAUNCHERS, "srun", "torchrun")


class _Parser(argparse.ArgumentParser):
    """A parser that never exits: it raises NotUnderstoodError for a wrong line."""

    def __init__(self, program: str) -> None:
        super().__init__(program, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise NotUnderstoodError(f"{self.prog}: {message}")


def parse_torchrun(words: Sequence[str], nodes: int = 1, each: int = 1) -> CommandLine:
    """Parse a line of torchrun; the defaults are `each` ranks on each of so many nodes.

    Raises NotUnderstoodError.
    """
    parser = _Parser("torchrun")
    for name in ("--nnodes", "--nproc-per-node", *_TORCHRUN):
        # Names may have underscores or dashes.
        spellings = dict.fromkeys((name, f"--{name[2:].replace('-', '_')}"))
        action = "store_true" if name == "--standalone" else "store"
        parser.add_argument(*spellings, action=action)
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    command = [given.program, *given.arguments]
    for word in command:
        refuse_expansion(word)
    values = vars(given)
    parts = []
    for name, reason in {"--nproc-per-node": _SIZE, **_TORCHRUN}.items():
        value = values[name[2:].replace("-", "_")]
        if value:
            parts.append(LinePart(name if value is True else f"{name} {value}", "", reason))
    # MINIMUM:MAXIMUM, or one number.
    least, _, most = (given.nnodes or str(nodes)).rpartition(":")
    nodes = read_count("torchrun: --nnodes", most)
    min_workers = read_count("torchrun: --nnodes", least) if least else None
    if min_workers and min_workers > nodes:
        raise NotUnderstoodError(f"torchrun: --nnodes: {least} is more than {most}")
    if given.nnodes:
        new, reason = (WORKER_MINIMUM, "") if least else ("", _SIZE)
        parts.insert(0, LinePart(f"--nnodes {given.nnodes}", new, reason))
    if given.nproc_per_node:
        each = read_count("torchrun: --nproc-per-node", given.nproc_per_node)
    return CommandLine(
        "direct",
        "torchrun",
        framework="torch",
        command=("python3", *(["-m"] if given.module else []), *command),
        size=LineSize(ranks=nodes * each, per_host=each, min_workers=min_workers),
        parts=tuple(parts),
    )


def _parse_srun(words: Sequence[str], size: SlurmSize) -> tuple[CommandLine, SlurmSize]:
    """Parse the line of srun in a script of this size; return it, and the resulting size.

    Raises NotUnderstoodError.
    """
    parts = []
    rest = words
    while rest and rest[0].startswith("-"):
        size, width = size.take(rest)
        reason = _SIZE
        if not width and rest[0].startswith("--") and "=" in rest[0]:
            width = 1
            reason = "an option for Slurm"
        if not width:
            raise NotUnderstoodError(
                f"srun: of its options nodes and tasks are read: leave out {rest[0]}, or write it "
                "as --name=VALUE"
            )
        parts.append(LinePart(" ".join(rest[:width]), "", reason))
        rest = rest[width:]
    if not rest:
        raise NotUnderstoodError("srun: the line gives srun no command to run")
    program = PurePosixPath(rest[0]).name
    if program in STARTERS:
        raise NotUnderstoodError(
            f"srun starts {program}: write the line of {program} alone, with all nodes and ranks"
        )
    line = CommandLine(
        "mpirun",
        "srun",
        command=tuple(rest),
        parts=tuple(parts),
        checks=(
            "the ranks of srun start with mpirun: set launch.mode to direct for an image without "
            "MPI",
        ),
    )
    return line, size


def parse_launch(words: Sequence[str], header: SlurmSize) -> CommandLine:
    """Parse the line of any launcher in a script of this Slurm size. Raises NotUnderstoodError."""
    program = PurePosixPath(words[0]).name
    if program == "srun":
        line, header = _parse_srun(words[1:], header)
    elif program == "torchrun":
        line = parse_torchrun(words[1:])
    else:
        line = parse_line(words)
    size = header.fill(line.size)
    is_of_slurm = size.per_host != line.size.per_host
    checks = (explain_size(size),) if is_of_slurm else ()
    return replace(line, size=size, checks=(*line.checks, *checks))


def parse_container(
    texts: Sequence[str], nodes: int, each: int, known: Mapping[str, str]
) -> CommandLine:
    """Parse the command of equal pods: a launcher's line, or one rank on each.

    `known` are the variables that a shell would know. Raises NotUnderstoodError.
    """
    named = {PurePosixPath(part).name for text in texts for part in text.split()}
    if named.intersection((*STARTERS, _TORCH_RUN, _TORCH_LAUNCH)):
        line = _parse_start(unwrap_shell(texts, known), nodes, each)
        if line:
            return line
    return CommandLine("direct", texts[0], framework="torch", command=tuple(texts))


def _parse_start(words: Sequence[str], nodes: int, each: int) -> CommandLine | None:
    """Parse the line of a launcher; return None for another program. Raises NotUnderstoodError."""
    program, *rest = words
    name = PurePosixPath(program).name
    if name.startswith("python") and rest[:1] == ["-m"]:
        if rest[1:2] == [_TORCH_LAUNCH]:
            raise NotUnderstoodError(f"{_TORCH_LAUNCH} is not read: write the line of torchrun")
        if rest[1:2] == [_TORCH_RUN]:
            return parse_torchrun(words[3:], nodes, each)
    if name == "torchrun":
        return parse_torchrun(words[1:], nodes, each)
    return parse_launch(words, SlurmSize()) if name in STARTERS else None
